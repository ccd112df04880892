"""Simulated groups: events a second, group-hours a minute, memory of a large hour.

*Core*: heartbeats a second that a bare coordinator serves. *Engines*: events a second of a
world in which a hundred consumers live, bytes, frames and logs included: alone, telling facts that
nobody keeps, and with the checker behind it that takes each fact as it comes. *Swarm*: group-hours
a minute of drawn worlds, checked. *Memory*: the largest size of a process in which a thousand
members live for an hour and are checked. Seconds are the processor's, so that a busy machine says
nearly the same.

    python bench/lab.py
    python bench/lab.py --members 100 --minutes 5 --memory-members 100 --memory-minutes 10
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.interface import (
    Append,
    Appended,
    Effect,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    Loaded,
    Respond,
    SyncGroup,
)
from kohort.history.checker import Checker
from kohort.lab.plan import Behaviour, Plan, PodPlan, TopicPlan
from kohort.lab.random_plans import draw
from kohort.lab.runs import run_plan
from kohort.lab.world import World
from kohort.model.group_config import GroupConfig
from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName, ProtocolType, Token
from kohort.model.instants import Instant
from kohort.model.join import JoinProtocol

CORE_GOAL, ENGINES_GOAL = 100_000, 30_000
GROUPS = 1_000
CONSUMER, RANGE = ProtocolType("consumer"), ProtocolName("range")
QUIET = Behaviour(idle_ms=5_000, batch_ms=0, auto_commit_interval_ms=60_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=5, help="simulated")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--memory-members", type=int, default=1_000)
    parser.add_argument("--memory-minutes", type=int, default=60, help="simulated")
    parser.add_argument("--only-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_memory:
        world, spent = checked(plan(options.memory_members, options.memory_minutes))
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        rate = world.scheduler.count / spent
        print(f"{size} MiB; {world.facts:,} facts checked, {rate:,.0f} events/s")
        return 0
    core = bare_core()
    print(f"core: {core:,.0f} heartbeats/s (goal {CORE_GOAL:,})")
    alone, told, judged = engines(options.members, options.minutes)
    print(f"engines: {alone:,.0f} events/s; telling facts {told:,.0f}", end="")
    print(f"; with checker {judged:,.0f} (goal {ENGINES_GOAL:,})")
    print(f"swarm: {swarm(options.seeds):,.1f} checked group-hours/min")
    used = subprocess.run(
        [
            *(sys.executable, __file__, "--only-memory"),
            *("--memory-members", str(options.memory_members)),
            *("--memory-minutes", str(options.memory_minutes)),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    print(f"memory: {options.memory_members} members, {options.memory_minutes} min: {used}")
    return 0


def bare_core(rounds: int = 100) -> float:
    """Heartbeats a second, one member in each of many groups."""
    coordinator = Coordinator(
        GroupConfig(initial_rebalance_delay_ms=0), lambda prefix: f"{prefix}-1"
    )
    coordinator.handle(Loaded(), Instant(0))
    beats = [
        Heartbeat(
            token=Token(0),
            group_id=group_id,
            generation_id=GenerationId(1),
            member_id=join(coordinator, group_id),
            group_instance_id=None,
        )
        for group_id in (GroupId(f"g{number}") for number in range(GROUPS))
    ]
    now = Instant(0)
    began = time.process_time()
    for number in range(rounds):
        now = Instant(1_000 + number * 1_000_000)
        for beat in beats:
            coordinator.handle(beat, now)
    spent = time.process_time() - began
    (effect,) = coordinator.handle(beats[0], now)
    assert isinstance(effect, Respond)
    assert isinstance(effect.answer, HeartbeatAnswer)
    assert not effect.answer.error
    return rounds * len(beats) / spent


def join(coordinator: Coordinator, group_id: GroupId) -> MemberId:
    """A group of one, Stable; its member's id."""
    effects = feed(
        coordinator,
        JoinGroup(
            token=Token(1),
            group_id=group_id,
            member_id=MemberId(""),
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=60_000,
            protocol_type=CONSUMER,
            protocols=(JoinProtocol(name=RANGE, metadata=b""),),
            reason=None,
            accepts_member_id_required=False,
        ),
    )
    (joined,) = (effect.answer for effect in effects if isinstance(effect, Respond))
    assert isinstance(joined, JoinAnswer)
    feed(
        coordinator,
        SyncGroup(
            token=Token(2),
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=None,
            protocol_type=CONSUMER,
            protocol_name=RANGE,
            names_protocol=True,
            assignments=((joined.member_id, b""),),
        ),
    )
    return joined.member_id


def feed(coordinator: Coordinator, event: Event) -> list[Effect]:
    """Handle an event on a log that is durable at once."""
    todo: list[Event] = [event]
    effects: list[Effect] = []
    while todo:
        for effect in coordinator.handle(todo.pop(0), Instant(0)):
            effects.append(effect)
            if isinstance(effect, Append):
                todo.append(Appended(ticket=effect.ticket))
    return effects


def plan(members: int, minutes: int) -> Plan:
    """A quiet group."""
    return Plan(
        seed=1,
        topics=(TopicPlan(name="t", partitions=2 * members, records_per_second=0.1),),
        pods=tuple(PodPlan(name=f"p{n}", behaviour=QUIET) for n in range(members)),
        duration_ms=minutes * 60_000,
    )


def engines(members: int, minutes: int) -> tuple[float, float, float]:
    """Happenings a second: alone, telling facts, with facts that are checked as they come."""
    rates = []
    for recording in (False, True):
        world = World(plan(members, minutes), recording=recording, take=lambda _fact: None)
        began = time.process_time()
        world.run()
        rates.append(world.scheduler.count / (time.process_time() - began))
    world, spent = checked(plan(members, minutes))
    return rates[0], rates[1], world.scheduler.count / spent


def checked(planned: Plan) -> tuple[World, float]:
    """A world that has run with the checker behind it, and the seconds it took."""
    checker = Checker()
    world = World(planned, take=checker.feed)
    began = time.process_time()
    world.run()
    report = checker.finish()
    spent = time.process_time() - began
    if not report.clean:
        raise SystemExit(f"a quiet group broke a promise: {report.violations[0].message}")
    return world, spent


def swarm(seeds: int) -> float:
    """Checked group-hours a minute."""
    began, simulated = time.process_time(), 0
    for seed in range(seeds):
        drawn = draw(seed)
        run_plan(drawn)
        simulated += drawn.duration_ms
    return simulated / 3_600_000 / ((time.process_time() - began) / 60)


if __name__ == "__main__":
    raise SystemExit(main())
