"""The invariants of a coordinator between any two steps, as assertions.

In: the whole registry. Out: nothing, or an ``InvariantViolation`` with group and last facts.
Must not know: events. Tests call this after every step, and a server can do so, too.
"""

from __future__ import annotations

from kohort.coordinator.group import Group
from kohort.coordinator.registry import Registry
from kohort.coordinator.timers import SESSION, SWEEP, session_timer
from kohort.model.errors import InvariantViolation
from kohort.model.group_state import GroupState


def check(registry: Registry) -> None:
    """Assert every invariant.

    Raises:
        InvariantViolation: one does not hold.
    """
    for group_id, group in registry.groups.items():
        _require(group, group.group_id == group_id, f"it is registered as {group_id!r}")
        _check_members(group)
        _check_state(registry, group)
        _check_timers(registry, group)
        _check_offsets(registry, group)
    _check_stray_timers(registry)
    _check_parked(registry)


def _require(group: Group, holds: bool, otherwise: str) -> None:
    if not holds:
        raise group.violation(otherwise)


def _check_members(group: Group) -> None:
    members = group.members
    parked = sum(1 for m in members.values() if m.parked_join is not None)
    _require(
        group,
        parked == group.parked_joins,
        f"{group.parked_joins} parked joins are counted, but there are {parked}",
    )
    both = [m for m in members if m in group.pending]
    _require(group, not both, f"{both} are members and pending at once")
    static = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id}
    _require(
        group,
        static == group.static_members,
        f"the static map is {group.static_members}, but the members say {static}",
    )
    leads = group.leader_id in members if members else group.leader_id is None
    _require(group, leads, f"{group.leader_id!r} leads {list(members)}")
    strangers = [m for m in group.pending_sync if m not in members]
    _require(group, not strangers, f"a sync is awaited from {strangers}, which are no members")
    weight = sum(m.weight for m in members.values())
    _require(group, weight == group.weight, f"it weighs {weight}, not {group.weight}")
    counts: dict[str, int] = {}
    for member in members.values():
        for name in {p.name: None for p in member.protocols}:
            counts[name] = counts.get(name, 0) + 1
    _require(
        group,
        counts == group.protocol_counts,
        f"protocols are counted as {group.protocol_counts}, but are {counts}",
    )


def _check_state(registry: Registry, group: Group) -> None:
    state = group.state
    parked_syncs = [m.member_id for m in group.members.values() if m.parked_sync is not None]
    joining = state is GroupState.PREPARING_REBALANCE
    syncing = state is GroupState.COMPLETING_REBALANCE
    _require(group, joining or not group.parked_joins, "joins are parked outside the join phase")
    _require(group, syncing or not parked_syncs, f"syncs of {parked_syncs} are parked")
    _require(group, syncing or group.sync_write is None, "an assignment is under way")
    _require(group, joining or group.initial is None, "the initial window outlived its phase")
    settled = syncing or state is GroupState.STABLE
    _require(group, settled or not group.pending_sync, "syncs are awaited outside a generation")
    if state in {GroupState.EMPTY, GroupState.DEAD}:
        _require(group, not group.members, "it has members")
    if settled:
        _require(group, bool(group.members), "it has no members")
        _require(group, group.protocol_name is not None, "no protocol is selected")
        name = group.protocol_name
        without = [m for m in group.members.values() if name not in {p.name for p in m.protocols}]
        _require(group, not without, f"{[m.member_id for m in without]} do not support {name!r}")
    dead = state is GroupState.DEAD
    _require(group, dead == (group.deletion is not None), "Dead and the deletion disagree")
    waits = joining and group.reservation is not None
    _require(group, waits or not group.closing, "it closes, but waits for nothing")
    if settled:
        told = group.generation_id <= max(group.reserved, group.floor)
        _require(group, told or not group.has_reservations, "its generation is not reserved")
    for ticket in (group.sync_write, group.deletion, group.reservation):
        known = ticket is None or ticket in registry.writes
        _require(group, known, f"write {ticket} is awaited, but nobody knows it")


def _check_timers(registry: Registry, group: Group) -> None:
    deadlines = registry.deadlines
    joining = group.state is GroupState.PREPARING_REBALANCE
    _require(
        group,
        (joining and not group.closing) == (group.join_timer in deadlines),
        "the join timer runs exactly while members are waited for",
    )
    _require(
        group,
        (joining and not group.closing) or group.hold_timer not in deadlines,
        "the hold timer outlived the join phase",
    )
    _require(
        group,
        bool(group.pending_sync) == (group.sync_timer in deadlines),
        "the sync timer runs exactly while syncs are awaited",
    )
    for member_id, member in group.members.items():
        parked = member.parked_join is not None or member.parked_sync is not None
        _require(
            group,
            parked or member.session_timer in deadlines,
            f"member {member_id} is neither parked nor timed",
        )
    for member_id in group.pending:
        _require(
            group,
            session_timer(group.group_id, member_id) in deadlines,
            f"handed-out id {member_id} is not timed",
        )


def _check_offsets(registry: Registry, group: Group) -> None:
    for tp, under_way in group.offsets.writes.items():
        _require(group, under_way.count > 0, f"{tp} has {under_way.count} writes under way")
    if group.offsets.writes:
        _require(group, bool(registry.writes), "offsets are under way in no write")


def _check_parked(registry: Registry) -> None:
    """``Registry.parked`` holds the parked requests of all members, and no others."""
    known = registry.parked
    for token, member in known.items():
        group = registry.groups[member.session_timer.group_id]
        mine = group.members.get(member.member_id) is member
        _require(group, mine, f"{token} waits for {member.member_id}, which is no member")
        mine = token in (member.parked_join, member.parked_sync)
        _require(group, mine, f"{token} is not {member.member_id}'s")
    parked = sum(
        (member.parked_join is not None) + (member.parked_sync is not None)
        for group in registry.groups.values()
        for member in group.members.values()
    )
    if parked != len(known):
        raise InvariantViolation(f"{parked} requests are parked, but {len(known)} are known")


def _check_stray_timers(registry: Registry) -> None:
    """No timer outlives its group or member: other implementations have had such bugs."""
    for timer in registry.deadlines:
        if timer.kind == SWEEP:
            continue
        group = registry.groups.get(timer.group_id)
        if group is None:
            raise InvariantViolation(f"{timer} runs, but there is no group {timer.group_id!r}")
        if timer.kind == SESSION:
            known = timer.member_id in group.members or timer.member_id in group.pending
            _require(group, known, f"{timer} runs, but nobody has that id")
