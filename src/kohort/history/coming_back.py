"""Groups that a coordinator loads from its log.

In: a world and ``GroupLoaded``. Out: the world's group with the state of the loaded record; later
changes that were not durable are undone. Must not know: checks.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from kohort.history.views import GenerationView, GroupView, MemberView
from kohort.history.world import World
from kohort.model.facts import GroupLoaded
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupInstanceId, MemberId
from kohort.model.instants import Instant, Millis
from kohort.model.wire_facts import PersistBegun

_Members: TypeAlias = tuple[tuple[MemberId, GroupInstanceId | None], ...]

_DEFAULT_TIMEOUT: Final = Millis(300_000)


def came_back(world: World, recorded: Recorded, fact: GroupLoaded) -> None:
    """Apply ``GroupLoaded`` to the world."""
    old = world.before_boot.get(fact.group_id)
    view = GroupView(
        group_id=fact.group_id,
        known=True,
        state=GroupState.STABLE if fact.member_count else GroupState.EMPTY,
        state_since=recorded.at,
        generation_id=fact.generation_id,
        disturbed_at=recorded.at,
    )
    instances = _instances_in_log(world, fact)
    members = _members_on_record(world, fact)
    if old is not None:
        view.recent = old.recent
        view.stable = old.recent.get(fact.generation_id)
        view.generation = view.stable
        view.removed = old.removed
        view.renamed = old.renamed
        view.offers = old.offers
        if view.stable is not None:
            _rename_static_members(view.stable, view.renamed, members, instances)
        for member_id, _ in members:
            view.renamed.pop(member_id, None)  # the member that replaced this one was not durable
    before = {} if old is None else old.members
    static = {m.group_instance_id: m for m in before.values() if m.group_instance_id is not None}
    for member_id, instance_id in members:
        same = known = before.get(member_id)
        if known is None and instance_id is not None:
            known = static.get(instance_id)
        view.removed.pop(member_id, None)
        view.members[member_id] = MemberView(
            member_id=member_id,
            session_timeout_ms=known.session_timeout_ms if known else _DEFAULT_TIMEOUT,
            rebalance_timeout_ms=known.rebalance_timeout_ms if known else _DEFAULT_TIMEOUT,
            group_instance_id=instance_id,
            added_at=same.added_at if same else Instant(0),  # a crash does not reset a member's age
            is_new=False,
            alive_for_sure=recorded.at,
            alive_perhaps=recorded.at,
            exact=known is not None and known.exact,
        )
    world.groups[fact.group_id] = view


def may_be_of(write: PersistBegun, fact: GroupLoaded) -> bool:
    """Whether this write may contain the record from which a group was loaded.

    Static members are compared by instance id, since a younger record may have replaced their
    member ids.
    """
    if write.generation_id != fact.generation_id or len(write.members) != fact.member_count:
        return False
    return fact.members is None or _identities(write.members) == _identities(fact.members)


def _members_on_record(world: World, fact: GroupLoaded) -> _Members:
    """The loaded members; in older histories, the members of the newest write that fits."""
    for write in reversed(world.writes.get(fact.group_id, [])):
        if may_be_of(write, fact):
            world.writes[fact.group_id] = [write]
            return write.members if fact.members is None else fact.members
    return fact.members or ()


def _identities(members: _Members) -> frozenset[str]:
    return frozenset(
        member_id if instance_id is None else instance_id for member_id, instance_id in members
    )


def _instances_in_log(world: World, fact: GroupLoaded) -> dict[MemberId, GroupInstanceId]:
    """The instance ids of static members by member id, in any of its records."""
    return {
        member_id: instance_id
        for write in world.writes.get(fact.group_id, [])
        if write.generation_id == fact.generation_id
        for member_id, instance_id in write.members
        if instance_id is not None
    }


def _rename_static_members(
    generation: GenerationView,
    renamed: dict[MemberId, MemberId],
    members: _Members,
    instances: dict[MemberId, GroupInstanceId],
) -> None:
    """Rename the static members of a generation to the loaded member ids.

    During a rebalance a static member may be replaced several times, and a replacement in a stable
    group may not be durable. So the loaded ids are younger or older than those of the generation.
    If a static member expired and another process joined, only the instance id is the same.
    """
    present = {member_id for member_id, _ in members}
    holders = {
        instance_id: member_id for member_id, instance_id in members if instance_id is not None
    }
    for member_id in generation.member_ids:
        if member_id in present:
            continue
        younger = (later for later in _later(member_id, renamed) if later in present)
        older = (p for p in sorted(present) if member_id in _later(p, renamed))
        holder = next(younger, None) or next(older, None)
        if holder is None and member_id in instances:
            holder = holders.get(instances[member_id])
        if holder is not None:
            generation.rename(member_id, holder)


def _later(member_id: MemberId, renamed: dict[MemberId, MemberId]) -> list[MemberId]:
    """The member ids that replaced this one later, in order."""
    found: list[MemberId] = []
    while member_id in renamed and len(found) < len(renamed):
        member_id = renamed[member_id]
        found.append(member_id)
    return found
