"""The broker of a world: the coordinator's engine with the requests of a small node around it.

In: connections and bytes from the network, durable tickets from the journal, the time. Out: bytes,
writes, facts. Beside the coordinator's requests the node answers ApiVersions, Metadata,
FindCoordinator and ListOffsets. It can crash and restart, pause, and have its clock set. Must not
know: pods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Close, Handle, Observed, Output, Transmit
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.engine.coordinator_writes import Write
from kohort.lab.actions import CrashAtPersist
from kohort.lab.journal import Journal, wall_at
from kohort.lab.leaders import HOST, PORT, Leaders, port_of
from kohort.lab.network import Line, Network
from kohort.lab.plan import DiskPlan
from kohort.lab.scheduler import Alarm, Process, Scheduler
from kohort.lab.topics import TopicBook
from kohort.model.errors import ErrorCode
from kohort.model.group_config import GroupConfig
from kohort.model.history_record import AnyFact
from kohort.model.ids import ConnectionId, Ticket, TopicPartition
from kohort.model.instants import Instant
from kohort.model.wire_facts import CoordinatorStopped, PersistNotOnDisk
from kohort.storage.errors import StorageError
from kohort.wire.apis import APIS, Api
from kohort.wire.codec import decode_response, encode_request
from kohort.wire.messages import k02_list_offsets as k02
from kohort.wire.messages import k03_metadata as k03
from kohort.wire.messages import k10_find_coordinator as k10
from kohort.wire.messages import k18_api_versions as k18

BROKER: Final = "broker"
_NODE_ID: Final = 1
_OPERATOR: Final = ConnectionId(0)
_FIRST, _NEXT = -2, -1
_RESTART_MS: Final = 1_000
_STALL_FLOOR_MICROS: Final = 1_000_000
_SERVED: Final = frozenset({2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 42, 47})
_APIS: Final[tuple[Api, ...]] = tuple(api for api in APIS if api.key in _SERVED)
_ANNOUNCED: Final = [(api.key, api.broker.low, api.broker.high) for api in _APIS]


T = TypeVar("T")


class Node:
    """The broker, in all its lives.

    Args:
        scheduler: the time.
        config: the coordinator's settings.
        disk: the times of syncs.
        random: the generator of member ids and of the disk's choices.
        topics: the topics of the world.
        leaders: the leaders of partitions.
        record: takes facts, with the number of the broker's life.
        recording: whether the engine records requests, answers and writes, too.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        config: GroupConfig,
        disk: DiskPlan,
        *,
        random: Random,
        topics: TopicBook,
        leaders: Leaders,
        record: Callable[[str, int, Any], None],
        recording: bool,
    ) -> None:
        self.process = Process(BROKER, racing=True)
        self.up = False
        self.silent = False
        """While down: whether the whole machine is gone, so that no client is told."""
        self.coordinates = True
        """Whether the node serves requests about groups."""
        self.wall_offset_ms = 0
        self.network: Network
        self.engine: CoordinatorEngine
        self.journal = Journal(
            scheduler,
            disk,
            random,
            self.process,
            appended=self._appended,
            failed=self._append_failed,
            not_on_disk=self._not_on_disk,
            die=self._die,
        )
        self._scheduler = scheduler
        self._config = config
        self._random = random
        self._topics = topics
        self.leaders = leaders
        self._record = record
        self._engine_class = RecordingCoordinatorEngine if recording else CoordinatorEngine
        self._rows: list[k03.MetadataResponsePartition] = []
        self._lines: dict[ConnectionId, Line] = {}
        self._alarm = Alarm(scheduler, self.process, self._advance)
        self._paused_at = Instant(0)
        self._todo: deque[Output] = deque()
        self._draining = False

    @property
    def incarnation(self) -> int:
        """The number of the present life, from 1 on."""
        return self.process.life + 1

    # -- lives ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the log and serve."""
        if self.up:
            return
        now = self._scheduler.now
        try:
            records = self.journal.recover()
        except StorageError:
            # An operator starts the broker again.
            self.journal.crashed(power_cut=False)
            self._scheduler.after(_RESTART_MS, None, self.start)
            return
        self.up, self.silent = True, False
        self.engine = self._engine_class(
            self._config,
            self._member_id,
            wall=wall_at(now, self.wall_offset_ms),
            now=now,
            knows_partition=self._topics.knows,
            apis=_APIS,
        )
        self._carry(self.engine.replay(records, now))
        self._carry(self.engine.loaded(now))

    def crash(self, *, power_cut: bool, silent: bool, within_write: bool = False) -> None:
        """End the process or the whole machine, perhaps during the last write."""
        if not self.up:
            return
        self._record(BROKER, self.incarnation, CoordinatorStopped(crashed=True))
        self._end(silent=silent)
        self.journal.crashed(power_cut=power_cut, within_write=within_write)

    def _end(self, *, silent: bool) -> None:
        self.up, self.silent = False, silent
        self.process.end_life()
        self._lines.clear()
        self._todo.clear()
        self._alarm.clear()
        self.network.server_died()

    def pause(self) -> None:
        """Pause the process."""
        if self.up and not self.process.paused:
            self.process.paused = True
            self._paused_at = self._scheduler.now

    def resume(self) -> None:
        """Resume the process; first of all it tells the engine of the stall."""
        if not self.process.paused:
            return
        asleep = self._scheduler.now - self._paused_at
        if asleep > _STALL_FLOOR_MICROS:
            self._carry(self.engine.stalled(asleep, self._scheduler.now))
        self._scheduler.resume(self.process)

    def set_clock(self, by_ms: int) -> None:
        """Set the time of day; the engine learns it at once if the broker is up."""
        self.wall_offset_ms += by_ms
        if self.up:
            self._scheduler.at(self._scheduler.now, self.process, self._look_at_clock)

    def _look_at_clock(self) -> None:
        now = self._scheduler.now
        self._carry(self.engine.time_of_day(wall_at(now, self.wall_offset_ms), now))

    def _die(self, crash: CrashAtPersist) -> None:
        within = crash.moment == "appended"
        self.crash(power_cut=crash.power_cut, silent=False, within_write=within)
        self._scheduler.after(crash.down_ms, None, self.start)

    def _member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._random.getrandbits(128):032x}"

    # -- the network ------------------------------------------------------------------------------

    def line_accepted(self, line: Line) -> None:
        """A client connected."""
        self._lines[line.conn] = line
        host = line.client.process.name
        now = self._scheduler.now
        self._carry(self.engine.connected(line.conn, host, now, lambda _group: self.coordinates))

    def coordinate(self) -> None:
        """Coordinate all groups again."""
        self.coordinates = True

    def line_received(self, line: Line, data: bytes) -> None:
        """Bytes came."""
        self._carry(self.engine.received(line.conn, data, self._scheduler.now))

    def line_lost(self, line: Line) -> None:
        """A client is gone."""
        if self._lines.pop(line.conn, None) is not None:
            self._carry(self.engine.lost(line.conn, self._scheduler.now))

    def ask(self, request: object, version: int, answer: type[T]) -> T | None:
        """The answer to a request that comes from outside of the world; None if none came."""
        conn, now = _OPERATOR, self._scheduler.now
        self._carry(self.engine.connected(conn, "operator", now))
        outputs = self.engine.received(conn, encode_request(request, version, 1, None), now)
        frames = [o.data for o in outputs if type(o) is Transmit and o.conn == conn]
        self._carry([o for o in outputs if type(o) is not Transmit or o.conn != conn])
        self._carry(self.engine.lost(conn, now))
        return decode_response(answer, version, frames[0][4:])[1] if frames else None

    def tell(self, fact: AnyFact) -> None:
        """Record a fact about the broker."""
        self._record(BROKER, self.incarnation, fact)

    # -- the journal ------------------------------------------------------------------------------

    def _appended(self, ticket: Ticket) -> None:
        if self.up:  # else the write's end came to a process that is gone
            self._carry(self.engine.appended(ticket, self._scheduler.now))

    def _append_failed(self, ticket: Ticket, error: ErrorCode) -> None:
        if self.up:
            self._carry(self.engine.append_failed(ticket, error, self._scheduler.now))

    def _not_on_disk(self, ticket: Ticket) -> None:
        self._record(BROKER, self.incarnation, PersistNotOnDisk(ticket=ticket))

    # -- the turn ---------------------------------------------------------------------------------

    def _carry(self, outputs: list[Output]) -> None:
        """Carry out bytes and facts at once, then requests and writes, which cause new outputs."""
        for output in outputs:
            if type(output) is Transmit:
                line = self._lines.get(output.conn)
                if line is not None:
                    self.network.send_down(line, output.data)
            elif type(output) is Observed:
                self._record(BROKER, self.incarnation, output.fact)
            elif type(output) is Close:
                line = self._lines.pop(output.conn, None)
                if line is not None:
                    self.network.close_at_server(line)
            else:
                self._todo.append(output)
        if self._draining:
            return
        if self._todo:
            self._drain()
        if self.up:
            self._alarm.set(self.engine.next_deadline())

    def _drain(self) -> None:
        self._draining = True
        try:
            while self._todo:
                output = self._todo.popleft()
                if type(output) is Handle:
                    message = self._answer(output.request, self._lines.get(output.conn))
                    self._carry(self.engine.answer(output.conn, output.token, message))
                elif type(output) is Write:
                    wall = wall_at(self._scheduler.now, self.wall_offset_ms)
                    self.journal.write(output, wall)
        finally:
            self._draining = False

    def _advance(self) -> None:
        self._carry(self.engine.advance(self._scheduler.now))

    # -- the node's own requests ------------------------------------------------------------------

    def _answer(self, request: object, line: Line | None) -> object:
        if isinstance(request, k03.MetadataRequest):
            return self._metadata(request)
        if isinstance(request, k10.FindCoordinatorRequest):
            found = [
                k10.Coordinator(key=key, node_id=_NODE_ID, host=HOST, port=PORT)
                for key in request.coordinator_keys
            ]
            return k10.FindCoordinatorResponse(coordinators=found)
        if isinstance(request, k02.ListOffsetsRequest):
            return self._list_offsets(request, PORT if line is None else line.port)
        keys = [
            k18.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in _ANNOUNCED
        ]
        return k18.ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: k03.MetadataRequest) -> k03.MetadataResponse:
        known = self._topics.topics
        names = (
            list(known)
            if request.topics is None
            else [topic.name or "" for topic in request.topics]
        )
        topics = []
        for name in names:
            topic = known.get(name)
            rows = self._rows_of(name, topic.partitions if topic else 0)
            code = ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(
                k03.MetadataResponseTopic(error_code=int(code), name=name, partitions=rows)
            )
        nodes = [
            k03.MetadataResponseBroker(node_id=node, host=HOST, port=port_of(node))
            for node in self.leaders.alive
        ]
        return k03.MetadataResponse(brokers=nodes, controller_id=_NODE_ID, topics=topics)

    def _rows_of(self, topic: str, count: int) -> list[k03.MetadataResponsePartition]:
        """The partitions of a topic with their leaders; not to be changed by the caller."""
        if len(self.leaders.nodes) > 1:
            return [
                k03.MetadataResponsePartition(
                    partition_index=n, leader_id=self.leaders.of(TopicPartition(topic, n))
                )
                for n in range(count)
            ]
        rows = self._rows
        while len(rows) < count:
            row = k03.MetadataResponsePartition(partition_index=len(rows), leader_id=_NODE_ID)
            rows.append(row)
        return rows[:count]

    def _list_offsets(self, request: k02.ListOffsetsRequest, port: int) -> k02.ListOffsetsResponse:
        now = self._scheduler.now
        topics = []
        for topic in request.topics:
            rows = []
            for wanted in topic.partitions:
                tp = TopicPartition(topic.name, wanted.partition_index)
                end = self._topics.end(tp, now)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if end is None else ErrorCode.NONE
                offset = 0 if wanted.timestamp == _FIRST else (end if end is not None else -1)
                if end is not None and port_of(self.leaders.of(tp)) != port:
                    code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                rows.append(
                    k02.ListOffsetsPartitionResponse(
                        partition_index=tp.partition, error_code=int(code), offset=offset
                    )
                )
            topics.append(k02.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return k02.ListOffsetsResponse(topics=topics)
