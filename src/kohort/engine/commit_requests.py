"""Offset commits of a member: their identity, their waiting, their repetition, their refusal.

In: offsets to commit, ends of requests, the member's state. Out: ``Committed`` for the owner,
events for the member core. Must not know: connections.

Rule B12: a broker accepts commits of the present generation while the group is stable or waits for
joins. It refuses them from the end of the join phase until the leader's sync. A cooperative member
keeps its partitions across the sync, so its commit waits and is repeated under the new generation.
A repeated commit never moves an offset back. If a newer commit was accepted, the older one is sent
without the partitions of the newer one. If the answer to a newer commit was lost, that commit may
have been accepted: the older one is sent first and repeats the newer offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from kohort.engine.connections import Ended, PendingRequest, Purpose
from kohort.engine.member_offsets import commit_codes, commit_request
from kohort.engine.member_outputs import (
    Committed,
    RequestError,
    RequestErrorKind,
    Target,
)
from kohort.engine.request_router import RequestRouter
from kohort.member.events import CommitAccepted, CommitRefused, Event
from kohort.member.member import Member
from kohort.member.requests import RequestId
from kohort.member.states import MemberState
from kohort.model.errors import ErrorCode
from kohort.model.ids import NO_GENERATION, NO_MEMBER, GenerationId, MemberId, TopicPartition
from kohort.model.instants import Instant, Millis
from kohort.model.positions import Position
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest

_MEMBERSHIP_ENDED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_OF_MEMBERSHIP = _MEMBERSHIP_ENDED | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID}
_ON_ITS_WAY = (MemberState.JOINING, MemberState.SYNCING)


@dataclass(slots=True, kw_only=True)
class _Commit:
    """One commit of the owner."""

    request_id: RequestId
    offsets: Mapping[TopicPartition, Position]
    """The offsets that are still to be committed: accepted newer commits remove theirs."""
    as_member: bool
    """Made under a membership; otherwise it is the commit of a simple consumer."""
    pending: PendingRequest = field(init=False)
    generation_id: GenerationId = NO_GENERATION
    member_id: MemberId = NO_MEMBER
    """The identity with which it was sent last."""
    held: bool = False
    borrowed: frozenset[TopicPartition] = frozenset()
    """The partitions that were sent last with the offsets of a newer commit."""


class CommitRequests:
    """All commits that are not answered yet."""

    def __init__(
        self, member: Member, router: RequestRouter, feed: Callable[[Event], None]
    ) -> None:
        self._member = member
        self._router = router
        self._feed = feed
        self._commits: dict[RequestId, _Commit] = {}
        """From the oldest to the newest."""
        self._newest_sent = RequestId(0)

    def start(
        self,
        request_id: RequestId,
        offsets: Mapping[TopicPartition, Position],
        timeout_ms: Millis,
        now: Instant,
    ) -> None:
        """Begin a commit; it ends in exactly one Committed."""
        member = self._member
        if not offsets:
            self._answer(request_id)
            return
        if member.wanted and member.generation_id == NO_GENERATION:
            text = f"no membership in group {member.config.group_id!r}: {member.state.value}"
            self._answer(request_id, _membership(text))
            return
        commit = _Commit(request_id=request_id, offsets=dict(offsets), as_member=member.wanted)
        self._commits[request_id] = commit
        commit.pending = self._router.open(
            Purpose.COMMIT,
            request_id,
            where=Target.COORDINATOR,
            request_class=OffsetCommitRequest,
            build=lambda version: self._build(commit, version),
            timeout_ms=timeout_ms,
            now=now,
        )
        if commit.as_member and member.state is MemberState.SYNCING:
            self._hold(commit)

    def cancel(self, request_id: RequestId) -> bool:
        """Forget a commit; whether there was one."""
        commit = self._commits.pop(request_id, None)
        if commit is not None:
            self._router.cancel(commit.pending)
        return commit is not None

    def ended(self, event: Ended, now: Instant) -> None:
        """The request of a commit got its answer, or gets none."""
        pending, message, error = event
        commit = self._commits.get(RequestId(pending.subject))
        if commit is None:
            return
        if error is not None:
            self._answer(commit.request_id, error)
            return
        codes = commit_codes(message)
        refusal = next((c for c in codes.values() if c in _OF_MEMBERSHIP), None)
        if any(codes.get(tp) for tp in commit.borrowed) and refusal is None:
            # The borrowed offsets were refused. The newer commit learns that next; then this commit
            # is sent with its own offsets.
            self._router.again(pending, self._router.soon(now))
        elif refusal is None:
            self._settle(commit, codes, pending.sent_at or now)
        elif not commit.offsets:
            self._answer(commit.request_id)
        elif not self._worth_repeating(commit, refusal):
            self._refuse(commit, refusal)
        elif self._member.state in _ON_ITS_WAY:
            self._hold(commit)
        else:
            self._router.again(pending, self._router.soon(now))

    def joined(self, now: Instant) -> None:
        """Send the commits that waited for the new generation."""
        for commit in self._commits.values():
            if commit.held:
                commit.held = False
                commit.pending.not_before = now

    def membership_lost(self, text: str) -> None:
        """End all commits of the membership: other members may own the partitions."""
        for commit in [c for c in self._commits.values() if c.as_member]:
            self._router.cancel(commit.pending)
            self._answer(commit.request_id, _membership(text))

    def leaving(self) -> None:
        """End the commits that were not sent before the member leaves."""
        for commit in [c for c in self._commits.values() if c.as_member]:
            if commit.pending.sent_at is None:
                self._router.cancel(commit.pending)
                self._answer(commit.request_id, _membership("the member leaves the group"))

    # -- inside -----------------------------------------------------------------------------------

    def _build(self, commit: _Commit, version: int) -> OffsetCommitRequest:
        """Read identity and generation together, at the moment of sending (KAFKA-19242)."""
        member = self._member
        if commit.as_member:
            commit.generation_id, commit.member_id = member.generation_id, member.member_id
        offsets = dict(commit.offsets)
        if commit.request_id < self._newest_sent:
            offsets |= self._newer_offsets(commit)
        self._newest_sent = max(self._newest_sent, commit.request_id)
        return commit_request(
            group_id=member.config.group_id,
            generation_id=commit.generation_id,
            member_id=commit.member_id,
            group_instance_id=member.config.group_instance_id if commit.as_member else None,
            offsets=offsets,
            version=version,
        )

    def _newer_offsets(self, commit: _Commit) -> dict[TopicPartition, Position]:
        """The offsets of newer commits for the same partitions, if those commits were sent.

        The broker may have stored them. A repetition of the older offsets would move these back
        until the newer commit is repeated, too; and for good if the process ends before that.
        """
        said: dict[TopicPartition, Position] = {}
        for newer in reversed(self._commits.values()):
            if newer is commit or len(said) == len(commit.offsets):
                break
            if newer.request_id <= self._newest_sent:
                shared = {tp: o for tp, o in newer.offsets.items() if tp in commit.offsets}
                said = shared | said
        commit.borrowed = frozenset(said)
        return said

    def _hold(self, commit: _Commit) -> None:
        commit.held = True
        self._router.hold(commit.pending)

    def _settle(
        self, commit: _Commit, codes: Mapping[TopicPartition, ErrorCode], sent_at: Instant
    ) -> None:
        self._router.lookup.settled()
        refused = {p: code for p, code in codes.items() if code is not ErrorCode.NONE}
        if commit.as_member and len(refused) < len(codes):
            self._feed(
                CommitAccepted(
                    request_sent_at=sent_at,
                    generation_id=commit.generation_id,
                    member_id=commit.member_id,
                )
            )
        del self._commits[commit.request_id]
        self._router.out.append(Committed(request_id=commit.request_id, refused=refused))
        self._outdate(commit.request_id, codes.keys() - refused.keys())

    def _outdate(self, newer: RequestId, committed: Collection[TopicPartition]) -> None:
        """Remove the committed partitions from older commits; one without partitions is done."""
        older = takewhile(lambda number: number < newer, self._commits)
        for commit in [self._commits[number] for number in older]:
            if commit.offsets.keys().isdisjoint(committed):
                continue
            commit.offsets = {tp: o for tp, o in commit.offsets.items() if tp not in committed}
            if not commit.offsets and commit.pending.connection is None:
                self._router.cancel(commit.pending)
                self._answer(commit.request_id)

    def _worth_repeating(self, commit: _Commit, refusal: ErrorCode) -> bool:
        if not commit.as_member or refusal is ErrorCode.FENCED_INSTANCE_ID:
            return False
        member = self._member
        if member.state in _ON_ITS_WAY:
            return True
        return refusal in _MEMBERSHIP_ENDED and member.generation_id > commit.generation_id

    def _refuse(self, commit: _Commit, refusal: ErrorCode) -> None:
        if commit.as_member:
            self._feed(
                CommitRefused(
                    error=refusal, generation_id=commit.generation_id, member_id=commit.member_id
                )
            )
        group = self._member.config.group_id
        if refusal is ErrorCode.REBALANCE_IN_PROGRESS:
            text = f"group {group!r} is rebalancing; commit again when that is over"
            error = RequestError(RequestErrorKind.REBALANCING, text, refusal)
        else:
            text = (
                f"group {group!r} refused a commit of generation {commit.generation_id}: "
                f"{refusal.name}; other members may own the partitions"
            )
            error = _membership(text, refusal)
        self._answer(commit.request_id, error)

    def _answer(self, request_id: RequestId, error: RequestError | None = None) -> None:
        self._commits.pop(request_id, None)
        self._router.out.append(Committed(request_id=request_id, error=error))


def _membership(text: str, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> RequestError:
    return RequestError(RequestErrorKind.MEMBERSHIP, text, code)
