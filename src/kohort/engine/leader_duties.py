"""Keeps what a group's leader needs to assign, and to know when it must assign again.

In: ``PerformAssignment``, partition counts, instants. Out: an assignment for every member, or why
there is none; the instants of the next metadata refresh and of the next rebalance; the reason for
a rebalance. Must not know: how metadata is fetched, how an assignor decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.embedded.consumer import LeadersNote
from kohort.embedded.deferral import NOTHING
from kohort.member.effects import PerformAssignment
from kohort.member.events import AssignmentFailed, AssignmentPerformed
from kohort.model.errors import KohortError
from kohort.model.ids import NO_MEMBER, GenerationId, MemberId
from kohort.model.instants import Instant, Millis, after, millis_between, sooner
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.losses import LeaderMemory, Moment
from kohort.policies.spec import AssignAgain, Racks


@dataclass(slots=True)
class _Decision:
    """The basis of the present generation's assignment."""

    topics: frozenset[str]
    counts: Mapping[str, int] | None
    """None if the note of an earlier life names none; the first refresh sets them."""
    again: AssignAgain | None = None
    racks: Racks = field(default_factory=dict)
    """The racks of replicas, if the assignment depends on them."""
    fresh: bool = True
    """Whether the counts were fetched for this generation or since, not remembered from before."""


_TAKE_OVER = AssignAgain(
    after_ms=Millis(0), reason="the restarted leader takes over the work that its group has to do"
)


class LeaderDuties:
    """A member's memory while it leads, and the leader's two timers.

    The metadata timer looks for new partitions. The assignor's timer starts the rebalance that the
    newest plan asked for. Both end when the member no longer leads, or loses its membership.
    """

    def __init__(
        self,
        assigner: ConsumerAssigner,
        *,
        max_age_ms: Millis,
        missing_refresh_ms: Millis,
    ) -> None:
        self._assigner = assigner
        self._max_age_ms = max_age_ms
        self._missing_refresh_ms = missing_refresh_ms
        self._pending: PerformAssignment | None = None
        self._inherited: frozenset[str] | None = None
        """The group's topics, while the assignment of an earlier life is on its way to us."""
        self._decision: _Decision | None = None
        self.known: Mapping[str, int] = {}
        """Partition counts that this member knew before it asked for the present ones."""
        self.racks: Racks = {}
        """The racks of replicas of the group's topics, as far as they are known."""
        self.leader_id = NO_MEMBER
        """The id of this member."""
        self._proposed: object = None
        """The assigner's memory of a plan that is not in force yet."""
        self._memory: object = None
        """The assigner's memory of the plan that is in force, or was until the last rebalance."""
        self._pending_work = NOTHING
        """The pending work in this member's last assignment, also while it follows."""
        self._pending_since = Instant(0)
        self._refresh_at: Instant | None = None
        self._again_at: Instant | None = None

    # -- one generation ---------------------------------------------------------------------------

    def asked(self, effect: PerformAssignment) -> frozenset[str]:
        """The member leads a new generation; returns the topics that need a partition count."""
        self.resigned()
        self._pending = effect
        return self._topics(effect)

    def inherited(self, effect: PerformAssignment) -> None:
        """The member leads again, and the assignment of its earlier life stays valid (KIP-814)."""
        self.resigned()
        self._inherited = self._topics(effect)

    def _topics(self, effect: PerformAssignment) -> frozenset[str]:
        return self._assigner.topics([m.metadata for m in effect.members])

    def decide(
        self,
        generation_id: GenerationId,
        topics: frozenset[str],
        counts: Mapping[str, int],
        now: Instant,
        *,
        fresh: bool = True,
        static_id: MemberId | None = None,
    ) -> AssignmentPerformed | AssignmentFailed | None:
        """Assign with the counts that are known; None if the generation is no longer waiting.

        A restarted static member gets its old assignment back without a rebalance. Notes in these
        assignments tell the leader (``static_id``) the counts it used, and tell other members how
        many partitions they still had to give up: no other member can know that.
        """
        effect = self._pending
        if effect is None or effect.generation_id != generation_id:
            return None
        self._pending = None
        moment = Moment(
            generation_id=generation_id,
            now=now,
            memory=self._memory if isinstance(self._memory, LeaderMemory) else None,
            known=self.known,
            pending=self._pending_work.after(millis_between(self._pending_since, now)),
            racks=self.racks,
            leader_id=self.leader_id,
        )
        try:
            plan = self._assigner.assign(effect.protocol_name, effect.members, counts, moment)
        except KohortError as error:
            return AssignmentFailed(generation_id=generation_id, message=str(error))
        self._decision = _Decision(topics, dict(counts), plan.again, plan.racks, fresh)
        self._proposed = plan.memory
        assignments = dict(plan.assignments)
        for member_id, note in self._notes(effect, assignments, counts, static_id).items():
            assignments[member_id] = self._assigner.noted(assignments[member_id], note)
        return AssignmentPerformed(generation_id=generation_id, assignments=assignments)

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
        """Why a member that owns nothing must join again after this assignment, or None.

        A static member may die before it gives up the partitions that others wait for. Its next
        life gets the old assignment back, so it must start the rebalance that the first one owed.
        """
        note = self._assigner.note(assignment)
        if note is None or not note.withheld:
            return None
        return f"an earlier life held {note.withheld} partitions that others wait for"

    def joined(self, *, is_leader: bool, assignment: bytes, now: Instant) -> None:
        """The member has its assignment: the leader's timers start, a follower has none."""
        topics, self._inherited = self._inherited, None
        self._memory, self._proposed = self._proposed, None
        self._pending_work, self._pending_since = self._assigner.pending(assignment), now
        decision = self._decision
        if is_leader and topics is not None:
            note = self._assigner.note(assignment)
            # The age of this assignment is not known, but the followers know their waits.
            self._pending_work = self._pending_work.after(None)
            again = _TAKE_OVER if self._pending_work else None
            decision = self._decision = _Decision(topics, note.counts if note else None, again)
            self._refresh_at = now if topics else None
        elif is_leader and decision is not None:
            self.schedule(now)
        else:
            self.resigned()
            return
        self._again_at = after(now, decision.again.after_ms) if decision.again else None

    def resigned(self) -> None:
        """The member leads no generation (any more)."""
        self._decision = self._inherited = None
        self._refresh_at = self._again_at = None

    # -- timers -----------------------------------------------------------------------------------

    @property
    def due(self) -> Instant | None:
        """When the next timer ends; None while the member does not lead."""
        return sooner(self._refresh_at, self._again_at)

    def refresh_due(self, now: Instant) -> bool:
        """Whether to fetch the group's topics now; True once."""
        if self._refresh_at is None or self._refresh_at > now:
            return False
        self._refresh_at = None
        return True

    def assign_again_due(self, now: Instant) -> str | None:
        """The assignor's reason to rebalance now, once; None before its time."""
        if self._again_at is None or self._again_at > now:
            return None
        self._again_at = None
        decision = self._decision
        return decision.again.reason if decision and decision.again else None

    def schedule(self, now: Instant) -> None:
        """Plan the next refresh; soon after old counts, or while a topic does not exist."""
        decision = self._decision
        if decision is not None and decision.topics:
            missing = decision.topics - (decision.counts or {}).keys()
            soon = missing or not decision.fresh
            delay = self._missing_refresh_ms if soon else self._max_age_ms
            self._refresh_at = after(now, delay)

    def look_again(self, now: Instant) -> None:
        """The refresh failed: plan another one soon."""
        if self._decision is not None:
            self._refresh_at = after(now, self._missing_refresh_ms)

    # -- the group's topics -----------------------------------------------------------------------

    @property
    def topics(self) -> frozenset[str]:
        """Topics of the whole group; empty while the member does not lead."""
        return self._decision.topics if self._decision else frozenset()

    def changed(self, counts: Mapping[str, int]) -> str | None:
        """How counts or racks differ from those of the decision: a reason to rebalance, or None."""
        decision = self._decision
        if decision is None:
            return None
        decision.fresh = True
        if decision.counts is None:
            decision.counts = dict(counts)
        old = decision.counts
        differences = [
            f"{topic} {old.get(topic, 0)} to {counts.get(topic, 0)}"
            for topic in sorted(old.keys() | counts.keys())
            if old.get(topic) != counts.get(topic)
        ]
        if differences:
            return f"partition counts changed: {', '.join(differences)}"
        if any(self.racks.get(topic) != racks for topic, racks in decision.racks.items()):
            return "racks of replicas changed"
        return None
