"""Measures the lab: events a second, group-hours a minute, and the memory of a large group.

*Core*: heartbeats a second of a bare coordinator. *Engines*: events a second of a world with a
hundred consumers, with bytes, frames and logs: without facts, with facts that are dropped, and with
a checker that takes each fact at once. *Swarm*: group-hours a minute of random worlds with the
checker. *Memory*: the largest size of a process with a thousand members for an hour and the
checker. Seconds are CPU seconds, so that a busy machine gives similar results.

    python -m bench.lab
    python -m bench.lab --members 100 --minutes 5 --memory-members 100 --memory-minutes 10
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from bench.peers import ROOT
from bench.results import emit

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
    parser.add_argument("--small", action="store_true", help="sizes that run in seconds")
    parser.add_argument("--only-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    core_rounds = 100
    if options.small:
        options.members, options.minutes, options.seeds, core_rounds = 10, 1, 1, 5
        options.memory_members, options.memory_minutes = 10, 1
    if options.only_memory:
        world, spent = checked(plan(options.memory_members, options.memory_minutes))
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        found = {
            "mib": size,
            "facts": world.facts,
            "events_per_s": round(world.scheduler.count / spent),
        }
        print(json.dumps(found))
        return 0
    emit(
        "lab",
        {"what": "core", "heartbeats_per_s": round(bare_core(core_rounds)), "goal": CORE_GOAL},
    )
    rates = engines(options.members, options.minutes)
    for what, rate in zip(("engines", "engines, facts", "engines, checker"), rates, strict=True):
        emit("lab", {"what": what, "members": options.members, "events_per_s": round(rate)})
    hours = swarm(options.seeds)
    emit("lab", {"what": "swarm, checked", "group_hours_per_minute": round(hours, 1)})
    used = subprocess.run(
        [
            *(sys.executable, "-m", "bench.lab", "--only-memory"),
            *("--memory-members", str(options.memory_members)),
            *("--memory-minutes", str(options.memory_minutes)),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    minutes = f"memory, {options.memory_minutes} simulated minutes, checked"
    emit("lab", {"what": minutes, "members": options.memory_members} | json.loads(used))
    return 0


def bare_core(rounds: int) -> float:
    """Heartbeats a second, with one member in each of many groups."""
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
    """The member id of a Stable group with one member."""
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
    """All effects of an event, with a log that is durable at once."""
    todo: list[Event] = [event]
    effects: list[Effect] = []
    while todo:
        for effect in coordinator.handle(todo.pop(0), Instant(0)):
            effects.append(effect)
            if isinstance(effect, Append):
                todo.append(Appended(ticket=effect.ticket))
    return effects


def plan(members: int, minutes: int) -> Plan:
    """The plan of a group without faults."""
    return Plan(
        seed=1,
        topics=(TopicPlan(name="t", partitions=2 * members, records_per_second=0.1),),
        pods=tuple(PodPlan(name=f"p{n}", behaviour=QUIET) for n in range(members)),
        duration_ms=minutes * 60_000,
    )


def engines(members: int, minutes: int) -> tuple[float, float, float]:
    """Events a second: without facts, with facts, and with facts that are checked at once."""
    rates = []
    for recording in (False, True):
        world = World(plan(members, minutes), recording=recording, take=lambda _fact: None)
        began = time.process_time()
        world.run()
        rates.append(world.scheduler.count / (time.process_time() - began))
    world, spent = checked(plan(members, minutes))
    return rates[0], rates[1], world.scheduler.count / spent


def checked(planned: Plan) -> tuple[World, float]:
    """A finished world with a checker, and the CPU seconds of the run."""
    checker = Checker()
    world = World(planned, take=checker.feed)
    began = time.process_time()
    world.run()
    report = checker.finish()
    spent = time.process_time() - began
    if not report.clean:
        raise SystemExit(f"a group without faults broke a promise: {report.violations[0].message}")
    return world, spent


def swarm(seeds: int) -> float:
    """Group-hours a minute of random worlds with the checker."""
    began, simulated = time.process_time(), 0
    for seed in range(seeds):
        drawn = draw(seed)
        run_plan(drawn)
        simulated += drawn.duration_ms
    return simulated / 3_600_000 / ((time.process_time() - began) / 60)


if __name__ == "__main__":
    raise SystemExit(main())
