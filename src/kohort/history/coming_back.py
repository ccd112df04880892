"""How groups that a coordinator found in its log come back into the world.

In: a world and ``GroupLoaded``, which tells who is in the group. Out: the world's group, as that
record has it: what happened after it and was not durable is undone. Must not know: checks.
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
    """A group comes back from the log."""
    old = world.before_boot.get(fact.group_id)
    view = GroupView(
        group_id=fact.group_id,
        known=True,
        state=GroupState.STABLE if fact.member_count else GroupState.EMPTY,
        state_since=recorded.at,
        generation_id=fact.generation_id,
        disturbed_at=recorded.at,
    )
    places = _places_in_log(world, fact)
    members = _members_on_record(world, fact)
    if old is not None:
        view.recent = old.recent
        view.stable = old.recent.get(fact.generation_id)
        view.generation = view.stable
        view.removed = old.removed
        view.renamed = old.renamed
        view.offers = old.offers
        if view.stable is not None:
            _name_anew(view.stable, view.renamed, members, places)
        for member_id, _ in members:
            view.renamed.pop(member_id, None)  # who took its place then was not durable
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
            added_at=same.added_at if same else Instant(0),  # none is younger for the crash
            is_new=False,
            alive_for_sure=recorded.at,
            alive_perhaps=recorded.at,
            exact=known is not None and known.exact,
        )
    world.groups[fact.group_id] = view


def may_be_of(write: PersistBegun, fact: GroupLoaded) -> bool:
    """Whether a group that came back may be the one of this record.

    Holders of static places are told by another, younger record, so the place counts, not its
    holder's member id.
    """
    if write.generation_id != fact.generation_id or len(write.members) != fact.member_count:
        return False
    return fact.members is None or _places(write.members) == _places(fact.members)


def _members_on_record(world: World, fact: GroupLoaded) -> _Members:
    """Who came back. A history that does not tell leaves the newest record that fits."""
    for write in reversed(world.writes.get(fact.group_id, [])):
        if may_be_of(write, fact):
            world.writes[fact.group_id] = [write]
            return write.members if fact.members is None else fact.members
    return fact.members or ()


def _places(members: _Members) -> frozenset[str]:
    return frozenset(member_id if place is None else place for member_id, place in members)


def _places_in_log(world: World, fact: GroupLoaded) -> dict[MemberId, GroupInstanceId]:
    """The static places of a generation, by who holds them in any of its records."""
    return {
        member_id: place
        for write in world.writes.get(fact.group_id, [])
        if write.generation_id == fact.generation_id
        for member_id, place in write.members
        if place is not None
    }


def _name_anew(
    generation: GenerationView,
    renamed: dict[MemberId, MemberId],
    members: _Members,
    places: dict[MemberId, GroupInstanceId],
) -> None:
    """Places in a generation go on under the ids that came back.

    While a rebalance is under way a place may change hands several times, and a change in a stable
    group may not be durable: the ids that come back are younger than the generation's, or older. A
    place whose holder expired was taken by a stranger, who is known by the place alone.
    """
    present = {member_id for member_id, _ in members}
    holders = {place: member_id for member_id, place in members if place is not None}
    for member_id in generation.member_ids:
        if member_id in present:
            continue
        younger = (later for later in _later(member_id, renamed) if later in present)
        older = (p for p in sorted(present) if member_id in _later(p, renamed))
        holder = next(younger, None) or next(older, None)
        if holder is None and member_id in places:
            holder = holders.get(places[member_id])
        if holder is not None:
            generation.rename(member_id, holder)


def _later(member_id: MemberId, renamed: dict[MemberId, MemberId]) -> list[MemberId]:
    """Who held this place afterwards, one after the other."""
    found: list[MemberId] = []
    while member_id in renamed and len(found) < len(renamed):
        member_id = renamed[member_id]
        found.append(member_id)
    return found
