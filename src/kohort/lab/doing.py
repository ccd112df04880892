"""How each act is done to a world.

In: a world and an act; out: calls on the world's parts, now and when the act is over. Must not
know: who planned the act, what will come of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from kohort.lab import acts
from kohort.lab.heap import Heap
from kohort.lab.network import Network
from kohort.lab.node import Node
from kohort.lab.plan import Plan
from kohort.lab.pod import Pod
from kohort.lab.topics import TopicBook
from kohort.model.errors import ConfigError
from kohort.model.history_record import AnyFact
from kohort.model.instants import Instant
from kohort.model.world_facts import TopicSized


class Stage(Protocol):
    """What a world offers to acts."""

    @property
    def plan(self) -> Plan:
        """What was planned, to come back to."""
        ...

    @property
    def heap(self) -> Heap:
        """The time."""
        ...

    @property
    def node(self) -> Node:
        """The broker's machine."""
        ...

    @property
    def network(self) -> Network:
        """Everybody's."""
        ...

    @property
    def pods(self) -> Mapping[str, Pod]:
        """By name."""
        ...

    @property
    def topics(self) -> TopicBook:
        """All topics."""
        ...

    @property
    def now(self) -> Instant:
        """The present instant."""
        ...

    def after(self, millis: int | None, what: Callable[..., Any], *arguments: Any) -> None:
        """Let something happen later; never without ``millis``."""

    def note_fault(self, name: str, target: str) -> None:
        """Something is broken on purpose."""

    def record(self, source: str, incarnation: int, fact: AnyFact) -> None:
        """Take a fact into the history."""


def _crash_broker(world: Stage, act: acts.CrashBroker) -> None:
    if world.node.up:
        world.note_fault("crash", "broker")
        world.node.crash(power_cut=act.power_cut, silent=act.silent)
        world.heap.after(act.down_ms, None, world.node.start)


def _crash_at_persist(world: Stage, act: acts.CrashAtPersist) -> None:
    if act.moment not in acts.PERSIST_MOMENTS:
        known = ", ".join(acts.PERSIST_MOMENTS)
        raise ConfigError(f"moment {act.moment!r} of a persist is unknown; known: {known}")
    world.note_fault(f"crash at persist: {act.moment}", "broker")
    world.node.journal.arm(act)


def _stall_broker(world: Stage, act: acts.StallBroker) -> None:
    world.note_fault("stall", "broker")
    world.node.pause()
    world.after(act.for_ms, world.node.resume)


def _jump(world: Stage, act: acts.JumpWallClock) -> None:
    world.note_fault("wall clock", "broker")
    world.node.set_clock(act.by_ms)


def _start(world: Stage, act: acts.StartPod) -> None:
    world.pods[act.pod].start()


def _stop(world: Stage, act: acts.StopPod) -> None:
    world.pods[act.pod].stop(leave=act.leave, back_after_ms=act.back_after_ms)


def _kill(world: Stage, act: acts.KillPod) -> None:
    world.note_fault("kill", act.pod)
    world.pods[act.pod].kill(node_lost=act.node_lost, back_after_ms=act.back_after_ms)


def _pause(world: Stage, act: acts.PausePod) -> None:
    world.note_fault("pause", act.pod)
    world.pods[act.pod].pause()
    world.after(act.for_ms, world.pods[act.pod].resume)


def _cut(world: Stage, act: acts.CutPod) -> None:
    if act.direction not in acts.DIRECTIONS:
        known = ", ".join(acts.DIRECTIONS)
        raise ConfigError(f"direction {act.direction!r} is unknown; known: {known}")
    world.note_fault(f"cut {act.direction}", act.pod)
    pod = world.pods[act.pod]
    pod.cut(speaks=act.direction == "from broker", hears=act.direction == "to broker")
    world.after(act.for_ms, pod.heal)


def _reset(world: Stage, act: acts.ResetLines) -> None:
    world.note_fault("reset", act.pod or "all")
    client = world.pods[act.pod] if act.pod is not None else None
    for line in world.network.lines_of(client):
        world.network.reset(line)


def _half_open(world: Stage, act: acts.HalfOpenLines) -> None:
    world.note_fault("half open", act.pod)
    for line in world.network.lines_of(world.pods[act.pod]):
        world.network.half_open(line)


def _weather(world: Stage, act: acts.Weather) -> None:
    world.note_fault("weather", "network")
    network = world.network
    network.plan = replace(
        network.plan,
        delay_micros=act.delay_micros,
        jitter_micros=act.jitter_micros,
        reset_ppm=act.reset_ppm,
    )
    world.after(act.for_ms, setattr, network, "plan", world.plan.network)


def _slow_disk(world: Stage, act: acts.SlowDisk) -> None:
    world.note_fault("slow disk", "broker")
    journal = world.node.journal
    journal.plan = replace(journal.plan, sync_micros=act.sync_ms * 1_000)
    world.after(act.for_ms, setattr, journal, "plan", world.plan.disk)


def _full_disk(world: Stage, act: acts.FullDisk) -> None:
    world.note_fault("full disk", "broker")
    disk = world.node.journal.disk
    disk.capacity = disk.used()
    world.after(act.for_ms, setattr, disk, "capacity", None)


def _fail_sync(world: Stage, act: acts.FailSync) -> None:
    world.note_fault("failed sync", "broker")
    world.node.journal.fail_next_sync(
        lambda: world.after(act.down_ms, _restart_broken_broker, world)
    )


def _restart_broken_broker(world: Stage) -> None:
    if world.node.up and world.node.journal.broken:
        world.node.crash(power_cut=False, silent=False)
        world.node.start()


def _rejoin(world: Stage, act: acts.Rejoin) -> None:
    world.note_fault("rejoin", act.pod)
    world.pods[act.pod].rejoin()


def _resubscribe(world: Stage, act: acts.Resubscribe) -> None:
    world.pods[act.pod].resubscribe(act.topics)


def _grow(world: Stage, act: acts.GrowTopic) -> None:
    topic = world.topics.topics.get(act.topic)
    if topic is None:
        known = ", ".join(world.topics.topics)
        raise ConfigError(f"topic {act.topic!r} does not exist; there are: {known}")
    if act.partitions > topic.partitions:
        topic.grow(act.partitions, world.now)
        world.record("world", 1, TopicSized(topic=act.topic, partitions=topic.partitions))


def _slow_application(world: Stage, act: acts.SlowApplication) -> None:
    world.pods[act.pod].be_slow(act.batch_ms)


ACTORS: Final[dict[type, Callable[[Stage, Any], None]]] = {
    acts.CrashBroker: _crash_broker,
    acts.CrashAtPersist: _crash_at_persist,
    acts.StallBroker: _stall_broker,
    acts.JumpWallClock: _jump,
    acts.StartPod: _start,
    acts.StopPod: _stop,
    acts.KillPod: _kill,
    acts.PausePod: _pause,
    acts.CutPod: _cut,
    acts.ResetLines: _reset,
    acts.HalfOpenLines: _half_open,
    acts.Weather: _weather,
    acts.SlowDisk: _slow_disk,
    acts.FullDisk: _full_disk,
    acts.FailSync: _fail_sync,
    acts.Rejoin: _rejoin,
    acts.Resubscribe: _resubscribe,
    acts.GrowTopic: _grow,
    acts.SlowApplication: _slow_application,
}
