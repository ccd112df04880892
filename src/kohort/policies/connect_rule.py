"""The rule of Kafka Connect for the work of lost workers, applied to partitions.

In: a group spec, the leader's id, the generation and the time. Out: a cooperative plan, and when
the leader must assign again. Must not know: bytes of requests, timers.

This is a policy to compare Design II with. A lost partition waits for the whole delay, also if its
member returns before; then all members that came with nothing meanwhile share what was lost, else
the least loaded members get it. While a delay runs, nothing moves for balance. A round that takes
partitions away for balance may not follow directly on another one: a growing delay is between them.
A new leader knows no lost partitions: it ignores what the userdata tells about a wait.

Source: Connect's IncrementalCooperativeAssignor (Apache Kafka 4.0), with tasks as partitions and
without connectors. Members should want the same topics: tasks have no subscribers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.embedded.deferral import NOTHING, Pending, Wait, encode_pending
from kohort.model.ids import NO_GENERATION, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant, Millis, after
from kohort.model.join import JoinedMember
from kohort.policies.claims import claimants
from kohort.policies.consumer_groups import ConsumerAssigner, in_bytes
from kohort.policies.losses import Moment, existing_partitions
from kohort.policies.spec import AssignAgain, EncodedPlan, GroupAssignment, GroupSpec, Plan
from kohort.policies.sticky import COOPERATIVE

_GROWTH = 40
"""Each further round that would take partitions away waits this many times longer."""

_Partitions = frozenset[TopicPartition]


class ConnectRule:
    """The memory of one process that leads, or led: it outlives its terms as the leader.

    Args:
        most_wait_ms: scheduled.rebalance.max.delay.ms.
    """

    def __init__(self, most_wait_ms: Millis) -> None:
        self._most_wait_ms = most_wait_ms
        self._wait_ms = Millis(0)
        self._ends: Instant | None = None
        self._began = NO_GENERATION
        """The generation in which the wait began."""
        self._generation_id = NO_GENERATION
        self._members: frozenset[MemberId] = frozenset()
        """The members of the last plan."""
        self._assigned: _Partitions = frozenset()
        """The partitions that the last plan assigned, and those that were lost then."""
        self._revoked: _Partitions = frozenset()
        self._revoking = False
        """Whether the last plan took partitions away for balance."""
        self._revoking_rounds = 0
        self._candidates: dict[MemberId, None] = {}
        """Members that had nothing while a wait ran, in the order in which they were seen."""

    def decide(
        self, spec: GroupSpec, moment: Moment
    ) -> tuple[GroupAssignment, Pending, AssignAgain | None]:
        """Decide for one generation.

        Returns:
            The plan; the pending work for the userdata of every assignment, as Connect's
            assignments carry the delay; when the leader must assign again.
        """
        leader = spec.members.get(moment.leader_id)
        if leader is None or leader.generation_id != self._generation_id:
            self._assigned = frozenset()  # another leader's plan came in between
        existing, claims = existing_partitions(spec), claimants(spec)
        active = frozenset(claims)
        if self._revoked & active:
            self._assigned = active
        lost = (self._assigned & existing) - active
        new = existing - self._assigned - active
        loads = {
            member_id: sorted(p for p, members in claims.items() if members == {member_id})
            for member_id in spec.member_order()
        }
        new |= self._reassigned(lost, loads, moment.now)
        revoked = frozenset(p for p, members in claims.items() if len(members) > 1)
        if self._wait_ms:
            self._revoking = False
        else:
            revoked |= self._balanced(loads, len(existing), moment.now)
        for partition in sorted(new):
            _least(loads).append(partition)
        given = frozenset(p for mine in loads.values() for p in mine)
        self._assigned, self._revoked = given | lost, revoked
        self._generation_id, self._members = moment.generation_id, frozenset(spec.members)
        plan = {member_id: sorted(mine) for member_id, mine in loads.items()}
        # Connect's workers join again if something is taken away from them that they never had.
        unheld = revoked - active
        if not self._wait_ms and (revoked != unheld or not unheld):
            self._began = NO_GENERATION
            return plan, NOTHING, None
        if self._began == NO_GENERATION:
            self._began = moment.generation_id
        wait = Wait(
            wait_id=0,
            start_generation=self._began,
            remaining_ms=self._wait_ms,
            partitions=(lost | unheld) - given,
        )
        again = AssignAgain(after_ms=self._wait_ms, reason="the delay of Connect's rule is over")
        pending = Pending(waits=(wait,)) if wait.partitions else Pending(postponed=1)
        return plan, pending, again

    def _reassigned(
        self, lost: _Partitions, loads: dict[MemberId, list[TopicPartition]], now: Instant
    ) -> _Partitions:
        """The lost partitions that anybody may get now; candidates get theirs here."""
        if not lost and not self._revoking:
            self._end_wait()
            return lost
        nobody_left = self._ends is None and self._members <= loads.keys()
        if nobody_left or not self._most_wait_ms:
            return lost
        if self._ends is None or now < self._ends:
            self._candidates |= dict.fromkeys(m for m, mine in loads.items() if not mine)
            self._wait(
                self._most_wait_ms
                if self._ends is None
                else min(self._most_wait_ms, Millis((self._ends - now) // MICROS_PER_MILLI)),
                now,
            )
            return frozenset()
        candidates = [loads[m] for m in self._candidates if m in loads]
        for number, partition in enumerate(sorted(lost) if candidates else ()):
            candidates[number % len(candidates)].append(partition)
        self._end_wait()
        self._revoking = False
        return frozenset() if candidates else lost

    def _balanced(
        self, loads: dict[MemberId, list[TopicPartition]], total: int, now: Instant
    ) -> _Partitions:
        """Take partitions above the balanced share away, unless the last round did so, too."""
        above = _above_share(loads, total)
        if not above:
            self._revoking, self._revoking_rounds = False, 0
            return above
        if self._revoking:
            self._revoking_rounds += 1
            if self._most_wait_ms:
                grown = Millis(_GROWTH ** min(self._revoking_rounds, 6))
                self._wait(min(self._most_wait_ms, grown), now)
                return frozenset()
        self._revoking = True
        for mine in loads.values():
            mine[:] = [p for p in mine if p not in above]
        return above

    def _wait(self, wait_ms: Millis, now: Instant) -> None:
        self._wait_ms, self._ends = wait_ms, after(now, wait_ms)

    def _end_wait(self) -> None:
        self._wait_ms, self._ends = Millis(0), None
        self._candidates.clear()


def _above_share(loads: Mapping[MemberId, Sequence[TopicPartition]], total: int) -> _Partitions:
    """The partitions that members have above a balanced share; none in a group without any."""
    share, extras = divmod(total, len(loads))
    sizes = [len(mine) for mine in loads.values()]
    balanced = sizes.count(share + 1) == extras and sizes.count(share) == len(sizes) - extras
    if balanced or not any(sizes):
        return frozenset()
    above: set[TopicPartition] = set()
    for mine in loads.values():
        if len(mine) > share:
            above.update(mine[: len(mine) - share - (extras > 0)])
            extras -= extras > 0
    return frozenset(above)


def _least(loads: dict[MemberId, list[TopicPartition]]) -> list[TopicPartition]:
    return min(loads.items(), key=lambda item: (len(item[1]), item[0]))[1]


class ConnectRuleAssigner(ConsumerAssigner):
    """Decides for consumer groups under ``cooperative-sticky`` by Connect's rule.

    Args:
        most_wait_ms: scheduled.rebalance.max.delay.ms.
    """

    def __init__(self, most_wait_ms: Millis) -> None:
        super().__init__()
        self._rule = ConnectRule(most_wait_ms)

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment | None = None,
    ) -> EncodedPlan:
        """An assignment for every member; as `ConsumerAssigner` under another protocol name."""
        if moment is None or protocol_name != COOPERATIVE.name:
            return super().assign(protocol_name, members, partitions, moment)
        spec = self.spec(protocol_name, members, partitions)
        plan, pending, again = self._rule.decide(spec, moment)
        user_data = encode_pending(pending)
        told = {} if user_data is None else {m.member_id: user_data for m in members}
        return EncodedPlan(in_bytes(Plan(plan, told), members), again)
