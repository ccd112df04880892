"""Decides for groups that share named resources which are no partitions.

In: the resources of the application, the offers of the members. Out: assignments. Must not know:
where resources come from, what members do with them.

A resource travels as the only partition of a topic with its name, in the bytes of the consumer
protocol under another protocol type. So waits, limits of moves, identities and drains work as they
do for partitions. The topics of a subscription hold one text: the first generation of the member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kohort.embedded.consumer import decode_assignment
from kohort.embedded.deferral import Words, asks_to_drain
from kohort.model.errors import ConfigError
from kohort.model.ids import (
    NO_GENERATION,
    GenerationId,
    MemberId,
    ProtocolName,
    TopicPartition,
)
from kohort.model.instants import Millis
from kohort.model.join import JoinedMember
from kohort.policies.claims import valid_claims, without_claimed
from kohort.policies.consumer_groups import (
    DESIGN_ONE,
    ConsumerAssigner,
    group_spec,
    in_bytes,
)
from kohort.policies.deferred import Resolution
from kohort.policies.losses import Moment
from kohort.policies.record_size import BROKERS_RECORD_LIMIT
from kohort.policies.spec import (
    AssignAgain,
    EncodedPlan,
    GroupAssignment,
    GroupSpec,
    Plan,
    Say,
    say_nothing,
)
from kohort.policies.weighted import weighted_plan

RETRY_MS: Final = Millis(5_000)
"""The leader asks again for resources that it could not get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharer:
    """A member, as a policy sees it.

    Attributes:
        owned: the resources that the member works on; each belongs to one member.
        since: the member's first generation; a higher number is a younger member. -1: it is new.
    """

    owned: frozenset[str]
    since: int


Policy: TypeAlias = Callable[[Mapping[str, Sharer], Sequence[str]], Mapping[str, Collection[str]]]
"""From the members by id, and the sorted resources, to the resources of each member.

A member that drains or has damaged bytes is left out: its resources go to others.
"""


Resources: TypeAlias = Iterable[str] | Mapping[str, int]
"""All names, or all names with their weights."""

WORDS: Final = Words("resources", lambda partition: partition.topic)


class OpenAssigner(ConsumerAssigner):
    """Decides for groups in which every member can have every resource."""

    def topics(self, metadata: Sequence[bytes]) -> frozenset[str]:
        """None: resources need no metadata of a broker."""
        del metadata
        return frozenset()

    def spec(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
    ) -> GroupSpec:
        """Every member can have every resource."""
        return for_everybody(super().spec(protocol_name, members, partitions))

    def resolution(self, spec: GroupSpec) -> Resolution:
        """Waits and limits for this group: all resources have state, or none has."""
        found = super().resolution(spec)
        return replace(found, stateful=frozenset(spec.partitions)) if found.stateful else found


class ResourceAssigner(OpenAssigner):
    """Decides for groups that share resources.

    Args:
        resources: the resources that exist now; called on the membership's thread, with each
            assignment. With weights the load is balanced, and not the number.
        policy: the application's; None balances, and moves as few resources as possible.
        resolution: waits and limits of moves; a policy of the application has none.

    The other arguments are those of `ConsumerAssigner`.
    """

    words = WORDS

    def __init__(
        self,
        resources: Callable[[], Resources],
        policy: Policy | None = None,
        resolution: Resolution = DESIGN_ONE,
        say: Say = say_nothing,
        warn: Say = say_nothing,
        *,
        most_record_bytes: int = BROKERS_RECORD_LIMIT,
    ) -> None:
        super().__init__(resolution, say, warn, most_record_bytes=most_record_bytes)
        self._resources = resources
        self._policy = policy
        self._counts: dict[str, int] = {}
        self._weights: Mapping[str, int] = {}
        self._known: dict[str, int] = {}

    def remember(self) -> None:
        """An assignment came: the present resources are known to be shared out.

        A later leader needs this to tell resources of a lost member from new ones.
        """
        with suppress(Exception):
            self._known = dict.fromkeys(_checked(self._resources()), 1)

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment | None = None,
    ) -> EncodedPlan:
        """An assignment for every member.

        If the application raises, the resources that are known to the leader, or that members have,
        are shared out, and the leader assigns again soon.
        """
        again = None
        try:
            named = self._resources()
            self._counts = dict.fromkeys(_checked(named), 1)
            self._weights = named if isinstance(named, Mapping) else {}
        except Exception as error:
            self._warn(
                f"{_leader(moment)}the resources are not known ({error!r}); the last known ones "
                "are shared"
            )
            spec = group_spec(protocol_name, members, {})
            owned = {p.topic: 1 for m in spec.members.values() for p in m.owned}
            self._counts, self._weights = self._counts | owned, {}
            again = AssignAgain(after_ms=RETRY_MS, reason="the resources were not known")
        plan = self._decided(protocol_name, members, moment)
        return replace(plan, again=again) if again is not None else plan

    def balanced(self, spec: GroupSpec) -> GroupAssignment:
        """A balanced plan with few moves: by weights if there are any."""
        if not self._weights:
            return super().balanced(spec)
        weights = {resource_of(name): weight for name, weight in self._weights.items()}
        return weighted_plan(spec, weights)

    def plan_at_once(self, protocol_name: ProtocolName, spec: GroupSpec) -> Plan:
        """The same, without resources that another member has."""
        if not self._weights:
            return super().plan_at_once(protocol_name, spec)
        return Plan(without_claimed(self.balanced(spec), spec))

    def _decided(
        self, protocol_name: ProtocolName, members: Sequence[JoinedMember], moment: Moment | None
    ) -> EncodedPlan:
        if self._policy is not None:
            spec = group_spec(protocol_name, members, self._counts, self._warn)
            try:
                return EncodedPlan(in_bytes(_asked(self._policy, spec), members))
            except Exception as error:
                self._warn(
                    f"{_leader(moment)}the policy failed ({error!r}); the plan is balanced instead"
                )
        if moment is not None:
            moment = replace(moment, known=self._known)
        return super().assign(protocol_name, members, self._counts, moment)

    def withheld(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        plan: Mapping[MemberId, bytes],
        partitions: Mapping[str, int],
    ) -> dict[MemberId, int]:
        """For each member, the number of its resources that the plan assigns to nobody, if any."""
        del partitions
        return super().withheld(protocol_name, members, plan, self._counts)


def _leader(moment: Moment | None) -> str:
    return f"member {moment.leader_id} leads: " if moment is not None else ""


def for_everybody(spec: GroupSpec) -> GroupSpec:
    """The group in which every member wants every resource, except members with damaged bytes."""
    names = frozenset(spec.partitions)
    members = {
        i: replace(member, topics=names) if member.topics else member
        for i, member in spec.members.items()
    }
    return replace(spec, members=members)


def since_text(generation_id: GenerationId) -> str:
    """The text in a subscription that tells the member's first generation."""
    return f"since {generation_id}"


def _since(topics: Collection[str]) -> int:
    numbers = [text.rpartition(" ")[2] for text in topics]
    return max((int(n) for n in numbers if n.isdecimal()), default=NO_GENERATION)


def resource_of(name: str) -> TopicPartition:
    """A resource as it travels."""
    return TopicPartition(name, 0)


def name_of(partition: TopicPartition) -> str:
    """The name of a resource that travels."""
    return partition.topic


def resources_in(assignment: bytes) -> frozenset[str]:
    """The resources in an assignment; raises ProtocolError."""
    return frozenset(map(name_of, decode_assignment(assignment).partitions))


def _checked(names: Resources) -> list[str]:
    """The names, sorted.

    Raises:
        ConfigError: one is empty or no text, or comes twice, or has a wrong weight; or these are no
            names.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise ConfigError(f"expected a list of names or a dict of weights, got {names!r}")
    if isinstance(names, Mapping):
        for name, weight in names.items():
            if not isinstance(weight, int) or weight < 0:
                raise ConfigError(f"expected a weight of 0 or more for {name!r}, got {weight!r}")
    found = list(names)
    wrong = [name for name in found if not isinstance(name, str) or not name]
    if wrong:
        raise ConfigError(f"expected names of resources that are not empty, got {wrong[0]!r}")
    counts = Counter(found)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise ConfigError(f"resource {twice[0]!r} is named {counts[twice[0]]} times")
    return sorted(found)


def _asked(policy: Policy, offered: GroupSpec) -> Plan:
    """The application's plan, without resources that another member must give up first.

    Raises:
        ConfigError: the plan names an unknown member or resource, or a resource twice; or this is
            no plan.
    """
    spec = for_everybody(offered)
    names = sorted(spec.partitions)
    owners = valid_claims(spec)
    owned: dict[MemberId, set[str]] = {member_id: set() for member_id in spec.members}
    for partition, member_id in owners.items():
        owned[member_id].add(partition.topic)
    sharers = {
        str(i): Sharer(owned=frozenset(owned[i]), since=_since(offered.members[i].topics))
        for i in spec.member_order()
        if spec.members[i].topics and not asks_to_drain(spec.members[i].user_data)
    }
    if not sharers:
        return Plan({i: [] for i in spec.members})
    planned = policy(sharers, names)
    if not isinstance(planned, Mapping) or any(isinstance(m, str) for m in planned.values()):
        raise ConfigError(f"expected lists of names by member from the policy, got {planned!r}")
    wanted = {MemberId(i): list(mine) for i, mine in planned.items()}
    given = [name for mine in wanted.values() for name in mine]
    if unknown := sorted(set(given) - set(names)):
        raise ConfigError(f"the policy assigned {unknown[0]!r}, which is no resource")
    if len(given) != len(set(given)):
        raise ConfigError("the policy assigned a resource twice")
    if strangers := sorted(wanted.keys() - {MemberId(i) for i in sharers}):
        raise ConfigError(f"the policy assigned resources to {strangers[0]}, which is no member")
    plan = {i: sorted(map(resource_of, wanted.get(i, ()))) for i in spec.members}
    return Plan(without_claimed(plan, spec))
