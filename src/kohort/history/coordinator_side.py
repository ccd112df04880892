"""Changes of the world's groups by a coordinator's facts.

In: a world and one fact. Out: the changed groups. Some facts do not show whether a session timeout
was reset. So a member has two instants, a certain one and a possible one, and checks judge only by
the certain one. Must not know: checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kohort.history.coming_back import came_back
from kohort.history.reading import CONSUMERS, read_assignment, read_offer
from kohort.history.views import GenerationView, GroupView, MemberView, PendingView
from kohort.history.world import World
from kohort.model import facts as f
from kohort.model.errors import ErrorCode
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, MemberId
from kohort.model.instants import Instant, Millis
from kohort.model.wire_facts import (
    AnswerSent,
    CoordinatorBooted,
    CoordinatorStalled,
    CoordinatorStopped,
    GroupApi,
    JoinAsked,
    PersistBegun,
    PersistOk,
    RequestReceived,
)

_GENERATIONS_KEPT: Final = 8
_ALIVE: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
_DISTURBING: Final = frozenset(
    {
        RebalanceCause.MEMBER_ADDED,
        RebalanceCause.MEMBERS_LEFT,
        RebalanceCause.MEMBER_EXPIRED,
        RebalanceCause.SYNC_EXPIRED,
        RebalanceCause.ASSIGNMENT_NOT_STORED,
        RebalanceCause.OVER_CAPACITY,
    }
)


# -- starts and stops --------------------------------------------------------------------------


def _booted(world: World, recorded: Recorded, fact: CoordinatorBooted) -> None:
    world.boots += 1
    world.loading = False
    world.before_boot, world.groups = world.groups, {}
    world.requests.clear()
    world.request_in_hand = None
    world.settings = dict(fact.settings)
    world.disturbed_at = recorded.at
    world.coordinator_seen = True


def _stopped(world: World, recorded: Recorded, _fact: CoordinatorStopped) -> None:
    world.loading = True
    world.disturbed_at = recorded.at


def _stalled(world: World, recorded: Recorded, fact: CoordinatorStalled) -> None:
    world.stalls.append((recorded.at, fact.micros))


# -- the log -----------------------------------------------------------------------------------


def _persist_begun(world: World, _recorded: Recorded, fact: PersistBegun) -> None:
    if fact.generation_id is not None or fact.group_deleted:
        world.writes.setdefault(fact.group_id, []).append(fact)


# A failed write stays in the list: its sync failed, but a new process may still read its records.


def _persist_ok(world: World, _recorded: Recorded, fact: PersistOk) -> None:
    writes = world.writes.get(fact.group_id, [])
    for index, write in enumerate(writes):
        if write.ticket == fact.ticket:
            world.durable[fact.group_id] = write
            del writes[:index]
            return


# -- requests ----------------------------------------------------------------------------------


def _request(world: World, recorded: Recorded, fact: RequestReceived) -> None:
    world.coordinator_seen = True
    world.requests[world.request_key(recorded, fact.token, fact.group_id)] = recorded
    world.request_in_hand = fact
    group = world.groups.get(fact.group_id)
    member = group.members.get(fact.member_id) if group is not None else None
    if group is None or member is None:
        return
    if fact.api is GroupApi.SYNC_GROUP:
        member.sync_tokens.add(fact.token)
    if _may_touch(fact, group):
        member.alive_perhaps = recorded.at


def _may_touch(fact: RequestReceived, group: GroupView) -> bool:
    """Whether a request may reset its sender's session timeout, now or with its answer."""
    if fact.api is GroupApi.OFFSET_COMMIT:
        return fact.generation_id == group.generation_id
    return fact.api in {GroupApi.JOIN_GROUP, GroupApi.SYNC_GROUP}


def _answer(world: World, recorded: Recorded, fact: AnswerSent) -> None:
    key = world.request_key(recorded, fact.token, fact.group_id)
    asked = world.requests.pop(key, None)
    group = world.groups.get(fact.group_id)
    member = group.members.get(fact.member_id) if group is not None else None
    if member is None:
        return
    at = recorded.at
    if fact.api is GroupApi.HEARTBEAT and fact.error in _ALIVE:
        member.alive_for_sure = member.alive_perhaps = at
    elif fact.api is GroupApi.JOIN_GROUP:
        if member.join_parked and fact.error is ErrorCode.NONE:
            member.alive_for_sure = at
        member.join_parked = False
        member.alive_perhaps = at
    elif fact.api is GroupApi.SYNC_GROUP:
        member.sync_tokens.discard(fact.token)
        member.alive_perhaps = at
        if asked is not None and asked.at < at:
            member.alive_for_sure = at
    elif fact.api is GroupApi.OFFSET_COMMIT and fact.error is ErrorCode.NONE and asked is not None:
        member.alive_for_sure = max(member.alive_for_sure, asked.at)


# -- members -----------------------------------------------------------------------------------


def _created(world: World, recorded: Recorded, fact: f.GroupCreated) -> None:
    world.coordinator_seen = True
    world.groups[fact.group_id] = GroupView(
        group_id=fact.group_id,
        known=True,
        state_since=recorded.at,
        generation_id=GenerationId(0),
        disturbed_at=recorded.at,
    )


def _handed_out(world: World, recorded: Recorded, fact: f.MemberIdHandedOut) -> None:
    asked = _join_in_hand(world, fact.group_id)
    timeout = asked.session_timeout_ms if asked is not None else None
    pending = PendingView(at=recorded.at, session_timeout_ms=timeout)
    world.group(fact.group_id).pending[fact.member_id] = pending


def _join_in_hand(world: World, group_id: str) -> JoinAsked | None:
    request = world.request_in_hand
    if request is None or request.group_id != group_id or not isinstance(request.body, JoinAsked):
        return None
    return request.body


def _pending_gone(
    world: World, _recorded: Recorded, fact: f.PendingMemberJoined | f.PendingMemberExpired
) -> None:
    group = world.group(fact.group_id)
    group.pending.pop(fact.member_id, None)


def _added(world: World, recorded: Recorded, fact: f.MemberAdded) -> None:
    group = world.group(fact.group_id)
    group.pending.pop(fact.member_id, None)
    group.members[fact.member_id] = MemberView(
        member_id=fact.member_id,
        session_timeout_ms=Millis(fact.session_timeout_ms),
        rebalance_timeout_ms=Millis(fact.rebalance_timeout_ms),
        group_instance_id=fact.group_instance_id,
        added_at=recorded.at,
        alive_for_sure=recorded.at,
        alive_perhaps=recorded.at,
    )
    group.disturbed_at = recorded.at
    asked = _join_in_hand(world, fact.group_id)
    if asked is not None:
        group.offers[fact.member_id] = asked


def _rejoined(world: World, _recorded: Recorded, fact: f.MemberRejoined) -> None:
    group = world.group(fact.group_id)
    member = group.members.get(fact.member_id)
    if member is None:
        return
    member.join_parked = True
    asked = _join_in_hand(world, fact.group_id)
    if asked is not None:
        old = group.offers.get(fact.member_id)
        if old is not None and _topics(old) != _topics(asked):
            group.disturbed_at = world.now
        group.offers[fact.member_id] = asked
        member.session_timeout_ms = asked.session_timeout_ms
        wait = asked.rebalance_timeout_ms
        member.rebalance_timeout_ms = wait if wait > 0 else asked.session_timeout_ms


def _topics(asked: JoinAsked) -> list[frozenset[str] | None]:
    offers = [read_offer(asked, name) for name, _ in asked.protocols]
    return [None if offer is None else offer.topics for offer in offers]


def _parked_join_dropped(world: World, recorded: Recorded, fact: f.ParkedJoinDropped) -> None:
    group = world.group(fact.group_id)
    member = group.members.get(fact.member_id)
    if fact.removed:
        _remove(group, fact.member_id, recorded.at)
    elif member is not None:
        member.join_parked = False
        member.alive_for_sure = member.alive_perhaps = recorded.at


def _parked_sync_dropped(world: World, recorded: Recorded, fact: f.ParkedSyncDropped) -> None:
    member = world.group(fact.group_id).members.get(fact.member_id)
    if member is not None:
        member.sync_tokens.clear()
        member.alive_for_sure = member.alive_perhaps = recorded.at


def _remove(group: GroupView, member_id: MemberId, at: Instant) -> None:
    group.members.pop(member_id, None)
    group.offers.pop(member_id, None)
    group.removed[member_id] = at
    group.disturbed_at = at


def _expired(world: World, recorded: Recorded, fact: f.MemberExpired) -> None:
    _remove(world.group(fact.group_id), fact.member_id, recorded.at)


def _left(world: World, recorded: Recorded, fact: f.MemberLeft) -> None:
    group = world.group(fact.group_id)
    if fact.pending:
        group.pending.pop(fact.member_id, None)
    else:
        _remove(group, fact.member_id, recorded.at)


def _not_rejoined(world: World, recorded: Recorded, fact: f.MembersNotRejoined) -> None:
    for member_id in fact.member_ids:
        _remove(world.group(fact.group_id), member_id, recorded.at)


def _refused(world: World, recorded: Recorded, fact: f.JoinRefused) -> None:
    group = world.groups.get(fact.group_id)
    too_many = fact.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    if group is not None and too_many and fact.member_id in group.members:
        _remove(group, fact.member_id, recorded.at)


def _replaced(world: World, recorded: Recorded, fact: f.StaticMemberReplaced) -> None:
    _replace_member(world, recorded, world.group(fact.group_id), fact.replaced_id, fact.member_id)


def _replace_member(
    world: World, recorded: Recorded, group: GroupView, old: MemberId, new: MemberId
) -> None:
    member = group.members.pop(old, None)
    if member is not None:
        group.members[new] = replace(
            member,
            member_id=new,
            sync_tokens=set(),
            join_parked=False,
            alive_for_sure=recorded.at,
            alive_perhaps=recorded.at,
        )
    group.removed[old] = recorded.at
    group.removed.pop(new, None)
    group.renamed[old] = new
    group.renamed.pop(new, None)
    group.offers.pop(old, None)
    asked = _join_in_hand(world, group.group_id)
    if asked is not None:
        group.offers[new] = asked
    if group.stable is not None and group.state is GroupState.STABLE:
        group.stable.rename(old, new)


# -- phases ------------------------------------------------------------------------------------


def _move(group: GroupView, state: GroupState, at: Instant) -> None:
    group.previous_state, group.state, group.state_since = group.state, state, at
    waits = [m.rebalance_timeout_ms for m in group.members.values()]
    group.phase_timeout_ms = max(waits, default=Millis(0))
    group.phase_timeout_known = all(m.exact for m in group.members.values())


def _rebalance(world: World, recorded: Recorded, fact: f.RebalanceStarted) -> None:
    group = world.group(fact.group_id)
    if fact.cause is RebalanceCause.SYNC_EXPIRED:
        for member_id in fact.member_ids:
            _remove(group, member_id, recorded.at)
    if fact.cause in _DISTURBING:
        group.disturbed_at = recorded.at
    _move(group, GroupState.PREPARING_REBALANCE, recorded.at)


def _nobody(world: World, recorded: Recorded, fact: f.NobodyRejoined) -> None:
    world.group(fact.group_id).state_since = recorded.at


def _opened(world: World, recorded: Recorded, fact: f.JoinPhaseCompleted) -> None:
    group = world.group(fact.group_id)
    _move(group, GroupState.COMPLETING_REBALANCE, recorded.at)
    group.generation_id = fact.generation_id
    group.generation = GenerationView(
        number=fact.generation_id,
        opened_at=recorded.at,
        protocol_name=fact.protocol_name,
        leader_id=fact.leader_id,
        member_ids=fact.member_ids,
        offers={m: group.offers[m] for m in fact.member_ids if m in group.offers},
        consumers=fact.protocol_type == CONSUMERS,
    )
    group.recent[fact.generation_id] = group.generation
    while len(group.recent) > _GENERATIONS_KEPT:
        del group.recent[next(iter(group.recent))]
    group.absent = set()
    for member_id in fact.member_ids:
        member = group.members.get(member_id)
        if member is not None:
            member.is_new = False
            if not member.join_parked:
                group.absent.add(member_id)


def _stabilized(world: World, recorded: Recorded, fact: f.GroupStabilized) -> None:
    group = world.group(fact.group_id)
    _move(group, GroupState.STABLE, recorded.at)
    generation = group.generation
    if generation is None or generation.number != fact.generation_id:
        return
    generation.assigned_at = recorded.at
    generation.assigned_by = generation.leader_id
    generation.assignments = dict(fact.assignments)
    generation.targets = targets_of(fact) if generation.consumers else None
    group.stable = generation


def targets_of(fact: f.GroupStabilized) -> Any:
    """The partitions of each member, or None if one assignment cannot be decoded."""
    targets = {member_id: read_assignment(data) for member_id, data in fact.assignments}
    return None if None in targets.values() else targets


def _emptied(world: World, recorded: Recorded, fact: f.GroupEmptied) -> None:
    group = world.group(fact.group_id)
    for member_id in list(group.members):
        _remove(group, member_id, recorded.at)
    _move(group, GroupState.EMPTY, recorded.at)
    group.generation_id = fact.generation_id
    group.generation = group.stable = None


def _deleted(world: World, recorded: Recorded, fact: f.GroupDeleted) -> None:
    world.groups[fact.group_id] = GroupView(
        group_id=fact.group_id, known=True, state_since=recorded.at
    )
    world.durable.pop(fact.group_id, None)


def _write_failed(world: World, recorded: Recorded, fact: f.WriteFailed) -> None:
    group = world.group(fact.group_id)
    group.disturbed_at = recorded.at
    if fact.purpose == "generation":
        group.state_since = recorded.at  # the write failed, so the phase starts again
    if fact.purpose == "static member" and group.renamed:
        old, new = list(group.renamed.items())[-1]
        if new in group.members:
            # The log still has the former member id.
            _replace_member(world, recorded, group, new, old)
    if fact.purpose == "creation" and group.generation_id <= 0:
        # The group may not exist; a later creation has a fact of its own.
        world.groups[fact.group_id] = GroupView(group_id=fact.group_id, state_since=recorded.at)


APPLIERS: Final[dict[type[Any], Callable[[World, Recorded, Any], None]]] = {
    CoordinatorBooted: _booted,
    CoordinatorStopped: _stopped,
    CoordinatorStalled: _stalled,
    f.GroupLoaded: came_back,
    PersistBegun: _persist_begun,
    PersistOk: _persist_ok,
    RequestReceived: _request,
    AnswerSent: _answer,
    f.GroupCreated: _created,
    f.MemberIdHandedOut: _handed_out,
    f.PendingMemberJoined: _pending_gone,
    f.PendingMemberExpired: _pending_gone,
    f.MemberAdded: _added,
    f.MemberRejoined: _rejoined,
    f.ParkedJoinDropped: _parked_join_dropped,
    f.ParkedSyncDropped: _parked_sync_dropped,
    f.MemberExpired: _expired,
    f.MemberLeft: _left,
    f.MembersNotRejoined: _not_rejoined,
    f.JoinRefused: _refused,
    f.StaticMemberReplaced: _replaced,
    f.RebalanceStarted: _rebalance,
    f.NobodyRejoined: _nobody,
    f.JoinPhaseCompleted: _opened,
    f.GroupStabilized: _stabilized,
    f.GroupEmptied: _emptied,
    f.GroupDeleted: _deleted,
    f.WriteFailed: _write_failed,
}
