"""Promises about ownership as applications see it: callbacks, overlaps, fencing.

In: callbacks and deliveries of clients, and the coordinator's facts if they are recorded. Ownership
lasts from the start of the assignment callback to the end of the revocation callback. Out:
findings, and notes on overlaps that no promise excludes. Must not know: offsets.
"""

from __future__ import annotations

from typing import Final

from kohort.history import promises
from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.assigning import COOPERATION, Assigned, Plan, lost_needlessly
from kohort.history.views import ProcessView
from kohort.history.world import World
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    Outcome,
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
    RecordsDelivered,
    RequestSent,
    ResponseReceived,
    Subscribed,
)
from kohort.model.errors import ErrorCode
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant
from kohort.model.member_facts import GenerationJoined, MemberStateChanged, RequestRefused
from kohort.model.wire_facts import GroupApi, LeaveAsked, RequestReceived

CONSUMER: Final = "consumer"
SELF_FENCING: Final = "self-fencing consumer"


class NoTwoOwners(Check):
    """At no instant do two live clients own a partition.

    A live client runs, is connected, and is a member for its coordinator. A client is a zombie if
    it is paused or cut off, if it was removed and does not know it, or if it is static and missed
    the join phase. Only the commits of a zombie are fenced. Its ownership is reported in seconds,
    as a note.
    """

    number, name, heading = 24, "no-two-owners", Heading.OWNERSHIP
    source, feature, kafka = "reliability 1.3 (24)", CONSUMER, Kafka.WEAKER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._overlaps: dict[tuple[str, TopicPartition], Instant] = {}
        self._zombie_micros: dict[str, int] = {}

    @on(CallbackStarted)
    def assigned(self, recorded: Recorded, fact: CallbackStarted) -> None:
        """Partitions get an owner: no other live client may own them."""
        if fact.kind is not CallbackKind.ASSIGNED or not fact.partitions:
            return
        others = [
            p
            for p in self.world.processes.values()
            if p.group_id == fact.group_id and p.source != recorded.source and p.running
        ]
        for partition in fact.partitions:
            for other in others:
                if partition in other.owned:
                    self._overlap(recorded, fact, partition, other)
        self.judged += 1

    def _overlap(
        self,
        recorded: Recorded,
        fact: CallbackStarted,
        partition: TopicPartition,
        other: ProcessView,
    ) -> None:
        if self._is_zombie(other, partition):
            self._overlaps.setdefault((other.source, partition), recorded.at)
            return
        self.judged += 1
        self.find(
            f"{partition} is assigned to {recorded.source} while {other.source} "
            f"({other.member_id}) owns it",
            recorded,
        )

    def _is_zombie(self, process: ProcessView, partition: TopicPartition) -> bool:
        """Whether the process is in trouble, or owns the partition under a removed or absent id."""
        if process.troubled:
            return True
        owned_as = process.owned_as.get(partition, process.member_id)
        group = self.world.group(process.group_id)
        return owned_as in group.removed or owned_as in group.absent

    @on(CallbackEnded, ProcessKilled, ProcessStopped)
    def ended(
        self, recorded: Recorded, fact: CallbackEnded | ProcessKilled | ProcessStopped
    ) -> None:
        """A zombie gives its partitions up, or ends."""
        if not self._overlaps:
            return
        if isinstance(fact, CallbackEnded) and fact.kind is CallbackKind.ASSIGNED:
            return
        gone = fact.partitions if isinstance(fact, CallbackEnded) else None
        for source, partition in list(self._overlaps):
            if source == recorded.source and (gone is None or partition in gone):
                since = self._overlaps.pop((source, partition))
                spent = self._zombie_micros.get(source, 0) + recorded.at - since
                self._zombie_micros[source] = spent

    def finish(self, last: Recorded) -> None:
        """Add up the overlaps of zombies."""
        for (source, _), since in self._overlaps.items():
            self._zombie_micros[source] = self._zombie_micros.get(source, 0) + last.at - since
        for source, micros in sorted(self._zombie_micros.items()):
            seconds = micros / MICROS_PER_SECOND
            self.notes.append(
                f"{source} kept partitions that another member owned, for {seconds:.1f} "
                "partition-seconds"
            )


class SelfFencing(Check):
    """A client delivers nothing once its session may have ended without its knowledge.

    The client stops one session timeout after it sent its last confirmed request. This is the last
    acknowledged heartbeat or commit, or the last JoinGroup with an answered SyncGroup. The
    coordinator restarts the session when this request arrives, so after the client sent the
    request. (A SyncGroup alone does not restart the session.) So the client has stopped before
    another member gets the partitions. The client's own clock counts.
    """

    number, name, heading = 25, "self-fencing", Heading.OWNERSHIP
    source, feature, kafka = "reliability 1.3 (25); live_kafka 2", SELF_FENCING, Kafka.NO

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._joined: dict[tuple[str, int], Instant] = {}
        self._confirmed: dict[tuple[str, int], Instant] = {}

    @on(ResponseReceived)
    def received(self, recorded: Recorded, fact: ResponseReceived) -> None:
        """An answer arrives: it may confirm the session."""
        life = (recorded.source, recorded.incarnation)
        sent = self.world.sent.get((*life, fact.request))
        alive = fact.outcome is Outcome.OK or (
            fact.api is GroupApi.HEARTBEAT and fact.error is ErrorCode.REBALANCE_IN_PROGRESS
        )
        if sent is None or not alive or fact.api is GroupApi.LEAVE_GROUP:
            return
        at, _ = sent
        if fact.api is GroupApi.JOIN_GROUP:
            self._joined[life] = at
            return
        if fact.api is GroupApi.SYNC_GROUP:
            at = self._joined.get(life, at)
        self._confirmed[life] = max(at, self._confirmed.get(life, at))

    @on(RecordsDelivered)
    def delivered(self, recorded: Recorded, fact: RecordsDelivered) -> None:
        """Records are handed out."""
        process = self.world.processes.get(recorded.source)
        confirmed = self._confirmed.get((recorded.source, recorded.incarnation))
        if process is None or not process.self_fencing or confirmed is None:
            return
        age = (fact.handed_at or recorded.at) - confirmed
        if not self.holds(age <= process.session_timeout_ms * MICROS_PER_MILLI):
            self.find(
                f"{recorded.source} delivered {fact.partition} {age // MICROS_PER_MILLI} ms after "
                f"its last confirmed request; its session is {process.session_timeout_ms} ms",
                recorded,
            )


class RevokeComesBeforeReassignment(Assigned):
    """A member gives a partition up before a generation gives it to another member.

    The member ends its callback and its commit before its next JoinGroup, and the assignment comes
    after this JoinGroup. So the next owner starts at the last position. The check judges members of
    the new generation with a recorded process.
    """

    number, name, heading = 26, "revoke-before-reassign", Heading.OWNERSHIP
    source, feature, kafka = "KIP-429; reliability 1.3 (26)", CONSUMER, Kafka.YES

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """No member still owns a partition that this generation gives to another one."""
        owners = {tp: m for m, partitions in plan.targets.items() for tp in partitions}
        for member_id in plan.generation.member_ids:
            process = self.world.process_of(member_id)
            if process is None or process.troubled or member_id in plan.group.absent:
                continue
            for partition in process.owned:
                owner = owners.get(partition)
                if process.owned_as.get(partition, member_id) != member_id:
                    continue  # owned under a lost membership; the callback for the loss is to come
                if not self.holds(owner is None or owner == member_id):
                    self.find(
                        f"{partition} goes to {owner} while {member_id} has not given it up",
                        recorded,
                        member_id=member_id,
                    )


class DeliveredWhileAssigned(Check):
    """Records of a partition are delivered only from its assignment to its revocation.

    The application was told that the partition is revoked or lost: its state is flushed, and
    another member may process the records. A record that is delivered later is processed twice, and
    nobody commits its offset.
    """

    number, name, heading = 53, "delivered-while-assigned", Heading.OWNERSHIP
    source, feature, kafka = "KAFKA-14196", CONSUMER, Kafka.YES

    @on(RecordsDelivered)
    def delivered(self, recorded: Recorded, fact: RecordsDelivered) -> None:
        """Records are handed to the application."""
        process = self.world.processes.get(recorded.source)
        if process is None or not process.seen_from_start:
            return
        if not self.holds(fact.partition in process.owned):
            self.find(
                f"{recorded.source} delivered {fact.partition} from {fact.first} to {fact.last}, "
                "which was not assigned to the application",
                recorded,
                member_id=process.member_id,
            )


class CallbackAlgebra(Check):
    """Callbacks add up: nothing is assigned twice, nothing revoked or lost that is not owned.

    Applications follow their partitions by callbacks alone. After a wrong callback an application
    keeps the state of a lost partition, or drops the state of a partition that it still reads.
    """

    number, name, heading = 27, "callback-algebra", Heading.OWNERSHIP
    source = "KIP-429; ConsumerRebalanceListener; reliability 1.3 (27)"
    feature, kafka = CONSUMER, Kafka.YES

    @on(CallbackStarted)
    def told(self, recorded: Recorded, fact: CallbackStarted) -> None:
        """A callback starts."""
        process = self.world.processes.get(recorded.source)
        if process is None or not process.seen_from_start:
            return
        if process.incarnation != recorded.incarnation:
            return
        assigning = fact.kind is CallbackKind.ASSIGNED
        wrong = [p for p in fact.partitions if (p in process.owned) == assigning]
        state = "owned already" if assigning else "not owned"
        if not self.holds(not wrong and len(set(fact.partitions)) == len(fact.partitions)):
            self.find(
                f"{fact.kind} of {wrong[0] if wrong else fact.partitions[0]}, which is {state}",
                recorded,
            )


class NoNeedlessRevoke(Assigned):
    """Under a cooperative policy no partition is revoked that the member keeps.

    A revocation and a new assignment of the same partition interrupt the processing needlessly.
    Closing, leaving and another subscription are reasons, and so is a generation that the member
    joined after the revocation began. A late SyncGroup is no reason: REBALANCE_IN_PROGRESS means
    that the member missed a rebalance, not that it lost its membership. A sticky policy takes
    nothing from a member that claims its share or less, if no other member claims the same: every
    balanced plan can leave these partitions to the member.
    """

    number, name, heading = 28, "no-needless-revoke", Heading.OWNERSHIP
    source = "KAFKA-14016; KAFKA-13891; reliability 1.3 (28)"
    feature, kafka = COOPERATION, Kafka.WAS_BROKEN

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._revocations: dict[str, list[tuple[Recorded, CallbackStarted, TopicPartition]]] = {}
        self._missed: dict[str, tuple[Instant, MemberId]] = {}
        self._joined: dict[str, GenerationJoined] = {}

    def assigned(self, recorded: Recorded, plan: Plan) -> None:
        """Find members that must give partitions up needlessly."""
        if not {promises.COOPERATIVE, promises.STICKY} <= set(plan.policy.promises):
            return
        offers = plan.offers()
        if offers is None:
            return
        taken = lost_needlessly(offers, plan.targets)
        if not self.holds(not taken):
            self.find(
                f"{len(taken)} members that claim their share or less, alone, must give up "
                f"{sum(map(len, taken.values()))} partitions; first {min(taken)}",
                recorded,
            )

    @on(RequestRefused)
    def refused(self, recorded: Recorded, fact: RequestRefused) -> None:
        """A generation goes on without this member."""
        if fact.request == "SyncGroup" and fact.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._missed[recorded.source] = (recorded.at, fact.member_id)

    @on(MemberStateChanged)
    def moved(self, recorded: Recorded, fact: MemberStateChanged) -> None:
        """A leave is a reason to revoke; after a missed generation a member keeps its partitions.

        A static member leaves without LeaveGroup.
        """
        if fact.after == "leaving":
            self._revocations.pop(recorded.source, None)
        process = self.world.processes.get(recorded.source)
        missed = self._missed.get(recorded.source)
        if process is None or fact.before != "syncing" or missed is None:
            return
        del self._missed[recorded.source]
        generation = self.world.group(fact.group_id).generation
        if missed[0] != recorded.at or generation is None or not process.owned:
            return
        if promises.COOPERATIVE in self.world.policy(generation.protocol_name).promises:
            if not self.holds(fact.after != "unjoined"):
                self.find(
                    f"{missed[1]} missed a generation and gave up {len(process.owned)} partitions "
                    "needlessly",
                    recorded,
                    member_id=missed[1],
                )

    @on(GenerationJoined)
    def joined(self, recorded: Recorded, fact: GenerationJoined) -> None:
        """A member joined; its callbacks may still be running for an older generation."""
        self._joined[recorded.source] = fact

    @on(CallbackStarted)
    def told(self, recorded: Recorded, fact: CallbackStarted) -> None:
        """A revocation is compared with the target; the next assignment or loss makes it a finding.

        The revocation is needless if both its own generation and the present generation of the
        member leave the partition to the member. A member that closes may revoke twice.
        """
        if fact.kind is not CallbackKind.REVOKED:
            self._judge_open(recorded.source)
        process = self.world.processes.get(recorded.source)
        if fact.kind is not CallbackKind.REVOKED or process is None or not fact.partitions:
            return
        target = self._target(fact.group_id, fact.generation_id, fact.member_id)
        joined = self._joined.get(recorded.source)
        if joined and target and joined.member_id == fact.member_id:
            now = self._target(fact.group_id, joined.generation_id, fact.member_id)
            target = None if now is None else target & now
        if target is None:
            return
        topics = process.topics
        kept = [p for p in fact.partitions if p in target and (not topics or p.topic in topics)]
        if kept:
            self._revocations.setdefault(recorded.source, []).append((recorded, fact, kept[0]))
        else:
            self.judged += 1

    def _target(
        self, group_id: GroupId, generation_id: GenerationId, member_id: MemberId
    ) -> frozenset[TopicPartition] | None:
        generation = self.world.group(group_id).recent.get(generation_id)
        if generation is None or generation.targets is None:
            return None
        # A member that offers an eager protocol, too, gives up everything before each join.
        asked = generation.offers.get(member_id)
        offered = [name for name, _ in asked.protocols] if asked else []
        names = [generation.protocol_name, *offered]
        if any(promises.COOPERATIVE not in self.world.policy(name).promises for name in names):
            return None
        return generation.targets.get(member_id)

    @on(ProcessStopped, ProcessKilled, ProcessStarted, Subscribed)
    def has_reason(
        self,
        recorded: Recorded,
        _fact: ProcessStopped | ProcessKilled | ProcessStarted | Subscribed,
    ) -> None:
        """The process ends or subscribes again: a good reason to revoke."""
        self._revocations.pop(recorded.source, None)

    @on(RequestSent)
    def leaves(self, recorded: Recorded, fact: RequestSent) -> None:
        """The client leaves the group: a good reason to revoke."""
        if fact.api is GroupApi.LEAVE_GROUP:
            self._revocations.pop(recorded.source, None)

    @on(RequestReceived)
    def left(self, _recorded: Recorded, fact: RequestReceived) -> None:
        """The coordinator receives the client's LeaveGroup: a good reason to revoke."""
        if isinstance(fact.body, LeaveAsked):
            leavers = {member_id for member_id, _ in fact.body.members}
            for source, found in list(self._revocations.items()):
                if any(told.member_id in leavers for _, told, _ in found):
                    del self._revocations[source]

    def _judge_open(self, source: str) -> None:
        for revocation in self._revocations.pop(source, ()):
            self._needless(*revocation)

    def _needless(self, recorded: Recorded, fact: CallbackStarted, kept: TopicPartition) -> None:
        self.judged += 1
        self.find(
            f"{fact.member_id} had to give up {kept}, which generation {fact.generation_id} "
            "assigns to it",
            recorded,
        )
