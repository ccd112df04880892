"""The broker: settings and a directory become a running server, which can be stopped cleanly.

In: where to listen, a data directory, settings. Out: a server that starts and stops once, in a
running asyncio loop. Must not know: the meaning of requests. All rooms are connected here only.

The order of a start: check the settings, bind the port, open the data, read the groups, serve. A
start that fails before the data is opened has written nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

from kohort.broker.broker_loop import BrokerLoop
from kohort.broker.deleting import DeletingRecords, DeletionSweep
from kohort.broker.fetching import Fetching
from kohort.broker.flusher import Flusher
from kohort.broker.journal import Journal, stored_records
from kohort.broker.limits import (
    ANSWERS_AT_ONCE,
    CLOCK_CHECK_MS,
    STOP_GRACE_SECONDS,
)
from kohort.broker.listener import BACKLOG, Gate, advertised_address, bind, connections_that_fit
from kohort.broker.nodes import Address, Node, Nodes, addresses_from, advertised_addresses
from kohort.broker.producing import Producing
from kohort.broker.service import Dispatcher
from kohort.broker.session import session_maker
from kohort.broker.state import BrokerState
from kohort.broker.sweeps import CompactionSweep, IdleSweep, RetentionSweep, SlowFrameSweep
from kohort.broker.topics import Topics, log_defaults
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_outputs import Observed
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.host.clock import clock_name, monotonic_now, wall_micros_at_zero, wall_now
from kohort.host.entropy import new_cluster_id, new_member_id
from kohort.host.group_log import GroupLog
from kohort.host.settings import INT_MAX, BrokerSettings, dotted
from kohort.model.errors import ConfigError, ProtocolError
from kohort.model.group_config import GroupConfig
from kohort.model.history_record import COORDINATOR_FACTS
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.model.wire_facts import CoordinatorStopped
from kohort.model.world_facts import TopicSized
from kohort.storage.errors import CorruptLog, StorageError
from kohort.storage.fact_files import Header
from kohort.storage.fact_recorder import FactRecorder
from kohort.storage.files import Files, RealFiles
from kohort.storage.log_dir import LogDir
from kohort.storage.partition_log import PartitionLog
from kohort.storage.topic_table import OFFSETS_TOPIC
from kohort.wire.server_connection import ServerLimits

logger = logging.getLogger(__name__)

__all__ = ["Address", "BrokerServer"]

LOGGED: Final = frozenset(COORDINATOR_FACTS)
"""Facts for the log; those of the wire are for histories only."""

DEFAULT_LISTEN: Final = Address("127.0.0.1", 0)
"""The loopback interface, a free port."""
CLOSED_AT_ONCE: Final = 16
"""Logs that are synced and closed at the same time. One after the other, 1,000 logs took 19 s."""

ACCEPT_TURNS: Final = 3
"""Turns of the loop from accepting a connection to ``connection_made``."""


class BrokerServer:
    """A broker in an asyncio loop.

    Args:
        data_dir: where topics and groups live; made when it is absent.
        listen: where the first node listens; the others take the ports that follow. Port 0 takes
            free ones.
        advertised: the addresses for clients, one for each node, or one for the first node and the
            next ports for the others; by default the addresses of the listening sockets.
        nodes: as how many nodes it appears; their ids begin with ``node.id``.
        settings: Kafka's settings.
        history: a file to record everything to that happens to groups.
        files: the disk of the data directory; `TemporaryFiles` where nothing must outlive a crash.

    Attributes:
        on_failure: called when the broker cannot go on; ``failure`` then says why, and it should
            be stopped.
        observers: called with every fact of the coordinator.

    Raises:
        ConfigError: this number of nodes is impossible, or does not fit ports and addresses.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        listen: Address = DEFAULT_LISTEN,
        advertised: Sequence[Address] = (),
        nodes: int = 1,
        settings: BrokerSettings | None = None,
        history: Path | None = None,
        files: Files | None = None,
    ) -> None:
        self.data_dir = data_dir
        self._files = files or RealFiles()
        self._history = history
        self.settings = settings or BrokerSettings()
        self.failure: StorageError | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.observers: list[Callable[[Observed], None]] = []
        self._group_config = _group_config(self.settings)
        self._node_ids = _node_ids(self.settings.node_id, nodes)
        self._listen = addresses_from(listen, nodes)
        self._wanted = advertised_addresses(advertised, nodes) if advertised else [None] * nodes
        self._down = contextlib.AsyncExitStack()
        self._nodes: list[Node] = []
        self._broker_loop: BrokerLoop
        self._flusher: Flusher
        self._fetching: Fetching

    @property
    def addresses(self) -> list[Address]:
        """The addresses for clients, one for each node that listens."""
        return [node.address for node in self._nodes]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses as clients take them."""
        return ",".join(str(address) for address in self.addresses)

    async def start(self) -> None:
        """Serve.

        Raises:
            ConfigError: the port is in use; nothing was written.
            StorageError: the data directory is in use, damaged or newer than this kohort.
        """
        try:
            sockets = self._take_ports()
            log_dir = self._open_data()
            topics = Topics(log_dir, self.settings)
            config = self._config_for(topics)
            nodes = Nodes(self._nodes, config.offsets_topic_num_partitions)
            engine = self._load_groups(topics, config, nodes)
            state = self._state(log_dir, topics, nodes)
            await self._wire_up(sockets, log_dir, state, engine)
        except BaseException:
            await self._down.aclose()
            raise

    async def stop(self) -> None:
        """Answer what can be answered, make everything durable, and let go of port and directory.

        Raises:
            StorageError: the last sync failed.
        """
        await self._down.aclose()

    def _take_ports(self) -> list[socket.socket]:
        sockets = []
        for node_id, listen, wanted in zip(self._node_ids, self._listen, self._wanted, strict=True):
            sock = bind(listen)
            self._down.callback(sock.close)
            sockets.append(sock)
            self._nodes.append(Node(node_id, advertised_address(sock, listen, wanted)))
        return sockets

    def _open_data(self) -> LogDir:
        log_dir = LogDir.open(
            self._files,
            str(self.data_dir.absolute()),
            node_id=self.settings.node_id,
            new_cluster_id=new_cluster_id,
            defaults=log_defaults(self.settings),
            report=lambda sentence: logger.warning("%s", sentence),
        )
        self._down.callback(_close, log_dir)
        return log_dir

    def _config_for(self, topics: Topics) -> GroupConfig:
        """The coordinator's settings.

        The number of partitions of ``__consumer_offsets`` is that of the existing topic,
        not of the setting: it decides which partition holds a group's records.
        """
        config = self._group_config
        stored = topics.get(OFFSETS_TOPIC)
        if stored is not None and stored.partitions != config.offsets_topic_num_partitions:
            logger.warning(
                "offsets.topic.num.partitions is %d, and %s has %d partitions, which stay",
                config.offsets_topic_num_partitions,
                OFFSETS_TOPIC,
                stored.partitions,
            )
            config = replace(config, offsets_topic_num_partitions=stored.partitions)
        return config

    def _load_groups(self, topics: Topics, config: GroupConfig, nodes: Nodes) -> CoordinatorEngine:
        """An engine that knows the groups on disk."""
        group_log = GroupLog(
            lambda group_id: nodes.coordinator_of(group_id).node_id,
            config.offsets_topic_num_partitions,
        )

        def log(observed: Observed) -> None:
            if type(observed.fact) in LOGGED:
                group_log.write(observed.fact)  # type: ignore[arg-type]

        self.observers.append(log)
        make_engine: Callable[..., CoordinatorEngine]
        make_engine = partial(
            CoordinatorEngine, hears=group_log.hears, details=group_log.hears_details
        )
        if self._history is not None:
            make_engine = RecordingCoordinatorEngine
            self._record(self._history, topics)
        engine = make_engine(
            config,
            new_member_id,
            wall=wall_now(),
            now=monotonic_now(),
            knows_partition=topics.exists,
            topics=topics,
            limits=ServerLimits(max_frame=self.settings.socket_request_max_bytes),
            answers_at_once=ANSWERS_AT_ONCE,
        )
        try:
            engine.replay(stored_records(topics), monotonic_now())
        except ProtocolError as error:
            raise CorruptLog(
                f"{OFFSETS_TOPIC} holds a record that cannot be read: {error}"
            ) from error
        return engine

    def _record(self, path: Path, topics: Topics) -> None:
        """Write down what happens from now on."""
        header = Header(clock=clock_name(), wall_micros=wall_micros_at_zero())
        recorder = FactRecorder(path, f"broker-{self.settings.node_id}", header)
        self._down.callback(recorder.close)
        # In order: no more answers when this is said, and closed after it.
        self._down.callback(
            lambda: recorder.record(CoordinatorStopped(crashed=False), monotonic_now())
        )
        self.observers.append(lambda observed: recorder.record(observed.fact, observed.at))

        def sized(name: str, partitions: int) -> None:
            if name != OFFSETS_TOPIC:
                fact = TopicSized(topic=name, partitions=partitions)
                recorder.record(fact, monotonic_now())

        topics.on_sized(sized)

    def _state(self, log_dir: LogDir, topics: Topics, nodes: Nodes) -> BrokerState:
        state = BrokerState(
            settings=self.settings,
            node_id=nodes.controller_id,
            nodes=nodes,
            cluster_id=log_dir.meta.cluster_id,
            leader_epoch=log_dir.meta.incarnation,
            topics=topics,
            new_producer_id=log_dir.producer_ids.allocate,
            wall_clock=wall_now,
        )
        missing = nodes.missing_for(topics.all())
        if missing:
            logger.warning(
                "topics were made for more nodes than the %d there are, and are told with the "
                "replicas that are left until they are back: %s",
                len(nodes),
                ", ".join(missing),
            )
        return state

    async def _wire_up(
        self,
        sockets: list[socket.socket],
        log_dir: LogDir,
        state: BrokerState,
        engine: CoordinatorEngine,
    ) -> None:
        loop = asyncio.get_running_loop()
        topics = state.topics
        executor = ThreadPoolExecutor(1, thread_name_prefix="kohort-sync")
        self._down.callback(executor.shutdown)
        settings = self.settings
        gate = Gate(
            lambda: connections_that_fit(settings.max_connections, topics.log_count),
            settings.max_connections_per_ip,
        )
        broker_loop = self._broker_loop = BrokerLoop(engine, loop, gate, self._observe)
        self._flusher = Flusher(loop, executor, broker_loop.chores, self._flushed)
        fetching = self._fetching = Fetching(broker_loop.chores)
        producing = Producing(self._flusher, fetching.waiting.appended)
        journal = Journal(topics, self._flusher, broker_loop.appended, broker_loop.append_failed)
        deleting = DeletingRecords(self._flusher)
        broker_loop.attach(journal, Dispatcher(broker_loop, producing, fetching, deleting))
        self._down.callback(broker_loop.stop)
        topics.on_deleted(self._topic_deleted)
        self._take_leftovers_away(log_dir, topics, loop)
        self._start_chores(log_dir, loop)
        broker_loop.loaded()
        await self._listen_on(sockets, state)

    async def _listen_on(self, sockets: list[socket.socket], state: BrokerState) -> None:
        loop, broker_loop = asyncio.get_running_loop(), self._broker_loop
        make = session_maker(loop, broker_loop)
        servers = []
        for sock, known in zip(sockets, self._nodes, strict=True):
            settings = replace(self.settings, node_id=known.node_id)
            node = replace(state, node_id=known.node_id, settings=settings)
            # Without the argument the loop would set the backlog to 100.
            create = loop.create_server(partial(make, node), sock=sock, backlog=BACKLOG)
            servers.append(await create)
        self._down.push_async_callback(self._let_go, servers, sockets)

    def _take_leftovers_away(
        self, log_dir: LogDir, topics: Topics, loop: asyncio.AbstractEventLoop
    ) -> None:
        executor = ThreadPoolExecutor(1, thread_name_prefix="kohort-removal")
        self._down.callback(executor.shutdown, cancel_futures=True)
        sweep = DeletionSweep(self._broker_loop.chores, log_dir, loop, executor)
        self._down.callback(sweep.stop)
        topics.on_deleted(lambda _name, _partitions: sweep.start(monotonic_now()))
        sweep.start(monotonic_now())

    def _start_chores(self, log_dir: LogDir, loop: asyncio.AbstractEventLoop) -> None:
        now = monotonic_now()
        chores = self._broker_loop.chores
        settings = self.settings
        interval = Millis(settings.log_retention_check_interval_ms)
        RetentionSweep(chores, interval, log_dir.logs).start(now)
        if settings.log_cleaner_enable:
            executor = ThreadPoolExecutor(1, thread_name_prefix="kohort-compaction")
            self._down.callback(executor.shutdown)
            pause = Millis(settings.log_cleaner_backoff_ms)
            compaction = CompactionSweep(chores, pause, log_dir.logs, loop, executor)
            self._down.callback(compaction.stop)
            compaction.start(now)
        idle = Millis(settings.connections_max_idle_ms)
        IdleSweep(chores, idle, self._broker_loop.sessions.values).start(now)
        frame = Millis(settings.kohort_frame_timeout_ms)
        SlowFrameSweep(
            chores, frame, self._broker_loop.sessions.values, self._broker_loop.unfinished
        ).start(now)
        self._look_at_the_clock(now)

    def _look_at_the_clock(self, now: Instant) -> None:
        self._broker_loop.time_of_day(wall_now())
        self._broker_loop.chores.arm(self._look_at_the_clock, after(now, CLOCK_CHECK_MS))

    async def _let_go(self, servers: list[asyncio.Server], listeners: list[socket.socket]) -> None:
        """Stop serving: no new connections, last answers, then no connections at all.

        A connection that asyncio has accepted is made into a transport a turn later, which fails
        and leaks its socket when the server was closed in between.
        """
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        self._fetching.finish_all()
        await self._last_syncs()
        await self._broker_loop.close_sessions()
        # Requests that came after the last answer are stored, too; their clients get no answer.
        await self._last_syncs()

    async def _last_syncs(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._flusher.drain(), STOP_GRACE_SECONDS)

    def _observe(self, observed: Observed) -> None:
        for observer in self.observers:
            observer(observed)

    def _topic_deleted(self, name: str, partitions: int) -> None:
        self._flusher.settle()
        self._fetching.waiting.changed(TopicPartition(name, n) for n in range(partitions))
        self._broker_loop.topics_deleted([name])

    def _flushed(self, log: PartitionLog) -> None:
        """A log was synced, or its sync failed: fetches that wait for its records may be ready."""
        if log.failure is not None:
            self._fail(log.failure)
        elif log.config.sync_before_answer:
            self._fetching.waiting.changed([TopicPartition.of(log.name)])

    def _fail(self, failure: StorageError) -> None:
        if self.failure is None:
            self.failure = failure
            logger.critical("%s", failure)
            self.on_failure()


def _node_ids(first: int, count: int) -> range:
    """Ids of this many nodes.

    Raises:
        ConfigError: there is none, or ids run out.
    """
    if count < 1:
        raise ConfigError(f"{count} nodes were asked for, expected at least 1 (--nodes)")
    if first + count - 1 > INT_MAX:
        raise ConfigError(
            f"{count} nodes from node.id {first} on: the last id would be {first + count - 1}, and "
            f"{INT_MAX} is the greatest; choose a lower node.id"
        )
    return range(first, first + count)


def _close(log_dir: LogDir) -> None:
    """Close the data directory; raises StorageError as ``LogDir.close``."""
    with ThreadPoolExecutor(CLOSED_AT_ONCE, thread_name_prefix="kohort-close") as executor:
        log_dir.close(executor.map)


def _group_config(settings: BrokerSettings) -> GroupConfig:
    """The coordinator's part of the settings.

    Raises:
        ConfigError: a value is outside the coordinator's range.
    """
    return GroupConfig.from_settings(
        {dotted(name): value for name, value in asdict(settings).items() if value is not None}
    )
