"""A member engine as its group's leader: what it needs to decide, and when it must decide anew.

In: ``PerformAssignment``, partition counts, instants. Out: the assignments, or why there are none;
when counts should be looked at again; what changed; what a leader noted for whom it may meet again.
Must not know: how metadata is fetched, what an assignor does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kohort.embedded.consumer import LeadersNote
from kohort.member.effects import PerformAssignment
from kohort.member.events import AssignmentFailed, AssignmentPerformed, GroupMember
from kohort.model.errors import KohortError
from kohort.model.ids import GenerationId, MemberId, ProtocolName
from kohort.model.instants import Instant, Millis, after


class GroupAssigner(Protocol):
    """What a leader's engine asks to decide: `policies.consumer_groups.ConsumerAssigner` fits."""

    def topics(self, protocol_name: ProtocolName, metadata: Sequence[bytes]) -> frozenset[str]:
        """Topics whose partition counts the decision needs (all that any member wants)."""
        ...

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[GroupMember],
        partitions: Mapping[str, int],
    ) -> Mapping[MemberId, bytes]:
        """An assignment for every member; topics without a count do not exist (yet)."""
        ...

    def withheld(
        self,
        protocol_name: ProtocolName,
        members: Sequence[GroupMember],
        plan: Mapping[MemberId, bytes],
        partitions: Mapping[str, int],
    ) -> Mapping[MemberId, int]:
        """How many partitions each of these holds that a plan gives to nobody; only above 0."""
        ...

    def noted(self, assignment: bytes, note: LeadersNote) -> bytes:
        """A static member's assignment, with a note."""
        ...

    def note(self, assignment: bytes) -> LeadersNote | None:
        """The note, from an assignment that came back; None if it is not there."""
        ...


@dataclass(slots=True)
class _Decided:
    """What the present generation was assigned by."""

    topics: frozenset[str]
    counts: Mapping[str, int] | None
    """None: not known, since somebody else decided; what is found first counts."""


class Leading:
    """The leader's memory."""

    def __init__(
        self,
        assigner: GroupAssigner,
        *,
        max_age_ms: Millis,
        missing_refresh_ms: Millis,
    ) -> None:
        self._assigner = assigner
        self._max_age_ms = max_age_ms
        self._missing_refresh_ms = missing_refresh_ms
        self._pending: PerformAssignment | None = None
        self._inherited: frozenset[str] | None = None
        """Topics of an assignment that stands, until it is in hand."""
        self._decided: _Decided | None = None
        self.refresh_at: Instant | None = None
        """When to fetch the group's topics again; None while not leading."""

    def asked(self, effect: PerformAssignment) -> frozenset[str]:
        """The member was elected: which topics must be known?"""
        self.resigned()
        self._pending = effect
        return self._topics(effect)

    def inherited(self, effect: PerformAssignment) -> None:
        """The member was elected, and what it decided in an earlier life stands."""
        self.resigned()
        self._inherited = self._topics(effect)

    def _topics(self, effect: PerformAssignment) -> frozenset[str]:
        return self._assigner.topics(effect.protocol_name, [m.metadata for m in effect.members])

    def decide(
        self,
        generation_id: GenerationId,
        topics: frozenset[str],
        counts: Mapping[str, int],
        *,
        static_id: MemberId | None = None,
    ) -> AssignmentPerformed | AssignmentFailed | None:
        """Counts are known as far as they can be: assign. None when it is no longer wanted.

        Static members find their assignments standing when they return. The leader (``static_id``)
        must then know whether topics grew meanwhile; who held what it was to let go of must say
        that it holds that no more, since nobody else will. Both find a note.
        """
        effect = self._pending
        if effect is None or effect.generation_id != generation_id:
            return None
        self._pending = None
        try:
            plan = dict(self._assigner.assign(effect.protocol_name, effect.members, counts))
        except KohortError as error:
            return AssignmentFailed(generation_id=generation_id, message=str(error))
        self._decided = _Decided(topics, dict(counts))
        for member_id, note in self._notes(effect, plan, counts, static_id).items():
            plan[member_id] = self._assigner.noted(plan[member_id], note)
        return AssignmentPerformed(generation_id=generation_id, assignments=plan)

    def _notes(
        self,
        effect: PerformAssignment,
        plan: Mapping[MemberId, bytes],
        counts: Mapping[str, int],
        static_id: MemberId | None,
    ) -> dict[MemberId, LeadersNote]:
        static = [m for m in effect.members if m.group_instance_id is not None]
        if not static:
            return {}
        held = self._assigner.withheld(effect.protocol_name, static, plan, counts)
        notes = {member_id: LeadersNote(withheld=n) for member_id, n in held.items()}
        if static_id is not None and static_id in plan:
            notes[static_id] = LeadersNote(counts=dict(counts), withheld=held.get(static_id, 0))
        return notes

    def left_undone(self, assignment: bytes) -> str | None:
        """A member that holds nothing has its assignment: why it must join again, or None.

        An earlier life of a static member may have died before it let go of what it was to hand
        over. Everybody else waits for it to come back, and it is back in a place that stands.
        """
        note = self._assigner.note(assignment)
        if note is None or not note.withheld:
            return None
        return f"an earlier life held {note.withheld} partitions that others wait for"

    def joined(self, *, is_leader: bool, assignment: bytes, now: Instant) -> None:
        """The generation is settled: watch the topics, or leave that to whoever leads."""
        topics, self._inherited = self._inherited, None
        if is_leader and topics is not None:
            note = self._assigner.note(assignment)
            self._decided = _Decided(topics, note.counts if note else None)
            self.refresh_at = now
        elif is_leader and self._decided is not None:
            self.schedule(now)
        else:
            self.resigned()

    def resigned(self) -> None:
        """Not the leader (any more)."""
        self._decided = self._inherited = None
        self.refresh_at = None

    def schedule(self, now: Instant) -> None:
        """Arm the next look; soon if topics are missing, since somebody waits for them."""
        decided = self._decided
        if decided is not None:
            missing = decided.topics - (decided.counts or {}).keys()
            delay = self._missing_refresh_ms if missing else self._max_age_ms
            self.refresh_at = after(now, delay)

    def look_again(self, now: Instant) -> None:
        """The look failed, so nothing is known that was not known before."""
        if self._decided is not None:
            self.refresh_at = after(now, self._missing_refresh_ms)

    @property
    def topics(self) -> frozenset[str]:
        """Topics of the whole group."""
        return self._decided.topics if self._decided else frozenset()

    def changed(self, counts: Mapping[str, int]) -> str | None:
        """How counts differ from those assigned by: a reason to rebalance, or None."""
        decided = self._decided
        if decided is None:
            return None
        if decided.counts is None:
            decided.counts = dict(counts)
        old = decided.counts
        differences = [
            f"{topic} {old.get(topic, 0)} to {counts.get(topic, 0)}"
            for topic in sorted(old.keys() | counts.keys())
            if old.get(topic) != counts.get(topic)
        ]
        return f"partition counts changed: {', '.join(differences)}" if differences else None
