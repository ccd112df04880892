"""The world of ``pair`` with recorded histories, so that tests can check real engines."""

from __future__ import annotations

from typing import Any

from tests.engine.pair import Client, World

from kohort.engine import coordinator_outputs as broker
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.engine.member_outputs import Committed
from kohort.member.effects import Joined, Observe
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    CommitConcluded,
    CommitSent,
    Outcome,
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
    Subscribed,
)
from kohort.model.history_record import AnyFact, Recorded
from kohort.model.ids import GenerationId, GroupId, TopicPartition
from kohort.model.world_facts import TopicSized

GROUP = GroupId("g")


class RecordedClient(Client):
    """A client that tells what its application goes through."""

    joined: Joined | None = None

    def tell(self, fact: AnyFact) -> None:
        assert isinstance(self.world, RecordedWorld)
        self.world.record(self.name, fact)

    def join(self) -> Client:
        self.tell(ProcessStarted(group_id=GROUP, client_id=self.name))
        self.tell(Subscribed(group_id=GROUP, topics=self.topics))
        return super().join()

    def leave(self) -> None:
        super().leave()
        self.tell(ProcessStopped(group_id=GROUP, member_id=self.engine.core.member_id))

    def kill(self) -> None:
        super().kill()
        self.tell(ProcessKilled(group_id=GROUP, member_id=self.engine.core.member_id))

    def commit(self) -> None:
        offsets = tuple((p, self.world.now // 1_000) for p in sorted(self.owned))
        self.tell(CommitSent(group_id=GROUP, request=len(self.sent), offsets=offsets))
        self.sent.append(offsets)
        super().commit()

    def __init__(self, *args: Any, **config: Any) -> None:
        self.sent: list[Any] = []
        super().__init__(*args, **config)

    def _owner(self, output: Any) -> None:
        if isinstance(output, Observe):
            self.tell(output.fact)
        elif isinstance(output, Joined):
            self.joined = output
        elif isinstance(output, Committed):
            outcome = Outcome.OK if output.error is None else Outcome.UNKNOWN
            number = len(self.committed)
            self.tell(CommitConcluded(group_id=GROUP, request=number, outcome=outcome))
        super()._owner(output)

    def _own(self, partitions: set[TopicPartition]) -> None:
        gone, new = sorted(self.owned - partitions), sorted(partitions - self.owned)
        super()._own(partitions)
        if self.alive and gone:
            lost = self.losses and self.engine.core.member_id == ""
            self._callback(CallbackKind.LOST if lost else CallbackKind.REVOKED, gone)
        if self.alive and (new or not gone):
            self._callback(CallbackKind.ASSIGNED, new)

    def _callback(self, kind: CallbackKind, partitions: list[TopicPartition]) -> None:
        for fact in (CallbackStarted, CallbackEnded):
            self.tell(
                fact(
                    group_id=GROUP,
                    member_id=self.engine.core.member_id,
                    generation_id=self.joined.generation_id if self.joined else GenerationId(-1),
                    kind=kind,
                    partitions=tuple(partitions),
                )
            )


class RecordedWorld(World):
    """A world that stores its history in ``history``."""

    def __init__(self, **config: Any) -> None:
        self.history: list[Recorded] = []
        super().__init__(**config)
        for topic, count in self.topics.items():
            self.record("broker", TopicSized(topic=topic, partitions=count))

    def make_engine(self, *args: Any, **more: Any) -> CoordinatorEngine:
        return RecordingCoordinatorEngine(*args, record_timers=True, **more)

    def client(self, name: str, **config: Any) -> Client:
        made = RecordedClient(self, name, **config)
        self.clients.append(made)
        return made

    def record(self, source: str, fact: AnyFact) -> None:
        self.history.append(
            Recorded(
                sequence=len(self.history) + 1,
                at=self.now,
                incarnation=1,
                source=source,
                fact=fact,
            )
        )

    def broker(self, outputs: list[broker.Output]) -> None:
        for output in outputs:
            if isinstance(output, broker.Observed):
                self.record("broker", output.fact)
        super().broker(outputs)
