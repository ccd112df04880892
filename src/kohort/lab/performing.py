"""Performs actions on a world.

In: a world and an action. Out: calls on the parts of the world, at once and when the action ends.
Must not know: plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kohort.lab import actions
from kohort.lab.application import Consuming
from kohort.lab.leaders import port_of
from kohort.lab.operator import describe
from kohort.lab.world_parts import WorldParts
from kohort.model.errors import ConfigError
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.world_facts import TopicSized

Perform = Callable[[WorldParts, Any], object]
"""Performs an action of one kind on a world."""


def _crash_broker(world: WorldParts, action: actions.CrashBroker) -> None:
    if world.node.up:
        world.note_fault("crash", "broker")
        world.node.crash(power_cut=action.power_cut, silent=action.silent)
        world.scheduler.after(action.down_ms, None, world.node.start)


def _crash_at_persist(world: WorldParts, action: actions.CrashAtPersist) -> None:
    if action.moment not in actions.PERSIST_MOMENTS:
        known = ", ".join(actions.PERSIST_MOMENTS)
        raise ConfigError(f"moment {action.moment!r} of a persist is unknown; known: {known}")
    world.note_fault(f"crash at persist: {action.moment}", "broker")
    world.node.journal.arm(action)


def _stall_broker(world: WorldParts, action: actions.StallBroker) -> None:
    world.note_fault("stall", "broker")
    world.node.pause()
    world.after(action.for_ms, world.node.resume)


def _jump(world: WorldParts, action: actions.JumpWallClock) -> None:
    world.note_fault("wall clock", "broker")
    world.node.set_clock(action.by_ms)


def _kill(world: WorldParts, action: actions.KillPod) -> None:
    world.note_fault("kill", action.pod)
    world.pods[action.pod].kill(node_lost=action.node_lost, back_after_ms=action.back_after_ms)


def _pause(world: WorldParts, action: actions.PausePod) -> None:
    world.note_fault("pause", action.pod)
    world.pods[action.pod].pause()
    world.after(action.for_ms, world.pods[action.pod].resume)


def _cut(world: WorldParts, action: actions.CutPod) -> None:
    if action.direction not in actions.DIRECTIONS:
        known = ", ".join(actions.DIRECTIONS)
        raise ConfigError(f"direction {action.direction!r} is unknown; known: {known}")
    world.note_fault(f"cut {action.direction}", action.pod)
    pod = world.pods[action.pod]
    pod.cut(speaks=action.direction == "from broker", hears=action.direction == "to broker")
    world.after(action.for_ms, pod.heal)


def _reset(world: WorldParts, action: actions.ResetLines) -> None:
    world.note_fault("reset", action.pod or "all")
    client = world.pods[action.pod] if action.pod is not None else None
    for line in world.network.lines_of(client):
        world.network.reset(line)


def _half_open(world: WorldParts, action: actions.HalfOpenLines) -> None:
    world.note_fault("half open", action.pod)
    for line in world.network.lines_of(world.pods[action.pod]):
        world.network.half_open(line)


def _weather(world: WorldParts, action: actions.Weather) -> None:
    world.note_fault("weather", "network")
    network = world.network
    network.plan = replace(
        network.plan,
        delay_micros=action.delay_micros,
        jitter_micros=action.jitter_micros,
        reset_ppm=action.reset_ppm,
    )
    world.after(action.for_ms, setattr, network, "plan", world.plan.network)


def _slow_disk(world: WorldParts, action: actions.SlowDisk) -> None:
    world.note_fault("slow disk", "broker")
    journal = world.node.journal
    journal.plan = replace(journal.plan, sync_micros=action.sync_ms * 1_000)
    world.after(action.for_ms, setattr, journal, "plan", world.plan.disk)


def _full_disk(world: WorldParts, action: actions.FullDisk) -> None:
    world.note_fault("full disk", "broker")
    disk = world.node.journal.disk
    disk.capacity = disk.used()
    world.after(action.for_ms, setattr, disk, "capacity", None)


def _fail_sync(world: WorldParts, action: actions.FailSync) -> None:
    world.note_fault("failed sync", "broker")
    world.node.journal.fail_next_sync(
        lambda: world.after(action.down_ms, _restart_broken_broker, world)
    )


def _restart_broken_broker(world: WorldParts) -> None:
    if world.node.up and world.node.journal.broken:
        world.node.crash(power_cut=False, silent=False)
        world.node.start()


def _rejoin(world: WorldParts, action: actions.Rejoin) -> None:
    world.note_fault("rejoin", action.pod)
    world.pods[action.pod].rejoin()


def _grow(world: WorldParts, action: actions.GrowTopic) -> None:
    topic = world.topics.topics.get(action.topic)
    if topic is None:
        known = ", ".join(world.topics.topics)
        raise ConfigError(f"topic {action.topic!r} does not exist; there are: {known}")
    if action.partitions > topic.partitions:
        topic.grow(action.partitions, world.now)
        world.record("world", 1, TopicSized(topic=action.topic, partitions=topic.partitions))


def _unsubscribe(world: WorldParts, action: actions.UnsubscribePod) -> None:
    world.note_fault("unsubscribe", action.pod)
    world.pods[action.pod].unsubscribe(action.again_ms)


def _move_leaders(world: WorldParts, action: actions.MoveLeaders) -> None:
    topic = world.topics.topics.get(action.topic)
    for partition in range(topic.partitions if topic is not None else 0):
        world.node.leaders.move(TopicPartition(action.topic, partition), action.node)


def _stop_node(world: WorldParts, action: actions.StopNode) -> None:
    leaders = world.node.leaders
    if action.node == 1 or action.node not in leaders.nodes:
        raise ConfigError(f"node {action.node} cannot be stopped; there are: {leaders.nodes}")
    world.note_fault("stop", f"node {action.node}")
    leaders.stop(action.node)
    world.network.close_port(port_of(action.node))
    world.scheduler.after(action.for_ms, None, _start_node, world, action.node)


def _start_node(world: WorldParts, node: int) -> None:
    world.node.leaders.start(node)
    world.network.closed_ports.discard(port_of(node))


def _lose_coordinator(world: WorldParts, action: actions.LoseCoordinator) -> None:
    node = world.node
    world.note_fault("coordinator lost", "broker")
    node.coordinates = False
    world.scheduler.after(action.for_ms, None, node.coordinate)


def _compact(world: WorldParts, action: actions.CompactLog) -> None:
    node = world.node
    if not node.up or node.process.paused:
        return
    node.journal.compact(replace=not action.power_cut)
    if action.power_cut:
        world.note_fault("crash during compaction", "broker")
        node.crash(power_cut=True, silent=False)
        world.scheduler.after(action.down_ms, None, node.start)


def _describe(world: WorldParts, _action: actions.DescribeGroup) -> None:
    if world.node.up and not world.node.process.paused:
        describe(world.node, GroupId(world.plan.group_id))


def _calling(call: Callable[[Consuming, Any], None]) -> Perform:
    """Call the application of a pod, if its process runs."""

    def perform(world: WorldParts, action: actions.PodAction) -> None:
        pod = world.pods[action.pod]
        if pod.up:
            call(pod.application, action)

    return perform


PERFORMERS: Final[dict[type, Perform]] = {
    actions.CrashBroker: _crash_broker,
    actions.CrashAtPersist: _crash_at_persist,
    actions.StallBroker: _stall_broker,
    actions.JumpWallClock: _jump,
    actions.StartPod: lambda world, action: world.pods[action.pod].start(),
    actions.StopPod: lambda world, action: world.pods[action.pod].stop(
        leave=action.leave, drain=action.drain, back_after_ms=action.back_after_ms
    ),
    actions.KillPod: _kill,
    actions.PausePod: _pause,
    actions.CutPod: _cut,
    actions.ResetLines: _reset,
    actions.HalfOpenLines: _half_open,
    actions.Weather: _weather,
    actions.SlowDisk: _slow_disk,
    actions.FullDisk: _full_disk,
    actions.FailSync: _fail_sync,
    actions.Rejoin: _rejoin,
    actions.Resubscribe: lambda world, action: world.pods[action.pod].resubscribe(action.topics),
    actions.GrowTopic: _grow,
    actions.SlowApplication: _calling(
        lambda application, action: application.be_slow(action.batch_ms)
    ),
    actions.SeekPartitions: _calling(lambda application, action: application.seek(action.to)),
    actions.CommitPositions: _calling(lambda application, _: application.commit()),
    actions.PausePartitions: _calling(lambda application, action: application.pause(action.for_ms)),
    actions.UnsubscribePod: _unsubscribe,
    actions.MoveLeaders: _move_leaders,
    actions.StopNode: _stop_node,
    actions.LoseCoordinator: _lose_coordinator,
    actions.CompactLog: _compact,
    actions.DescribeGroup: _describe,
}
