"""Measures assignors: CPU milliseconds for a plan, beside Kafka's own assignor and franz-go's.

*Plan*: from a group spec to the partitions of each member. *Leader*: from the bytes of all
subscriptions to the bytes of all assignments. Each case is measured for a new group (``full``) and
for the same group with one member more (``one more``); moves are counted there. The programs
of Java and franz-go (``bench.assignor_peers``) plan the same groups in the same run, each from its
own first plan. Where a program cannot be built, figures from an earlier run on another machine are
printed as recorded figures.

    python -m bench.assignors
    python -m bench.assignors --small --no-peers
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from bench.assignor_peers import GO, JAVA, LIMIT_S, Figures, Peer, PeerUnavailable, peers
from bench.ending import end_with_children
from bench.results import Row, emit
from bench.warming import warm

from kohort.embedded.consumer import Subscription, encode_subscription
from kohort.model.ids import GenerationId, MemberId
from kohort.model.join import JoinedMember
from kohort.model.partition_set import PartitionSet
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.spec import GroupSpec, MemberSpec, Shares
from kohort.policies.sticky import COOPERATIVE

NEW = MemberId("new")
STATES = {"full": "full", "one more": "more"}
"""The states of a group, and their names in the output of the other programs."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Case:
    """A group, its goal, and recorded figures of other implementations.

    ``joins`` are the topics of the member that joins later, usually all. ``recorded`` has CPU
    milliseconds for (full, one more) by the name of the implementation.
    """

    name: str
    topics: Mapping[MemberId, frozenset[str]]
    sizes: Mapping[str, int]
    racks: Mapping[MemberId, str] = field(default_factory=dict)
    replicas: Mapping[str, list[frozenset[str]]] = field(default_factory=dict)
    joins: frozenset[str] | None = None
    goal_ms: int | None = None
    recorded: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def spec(self, claims: Shares, *, one_more: bool) -> GroupSpec:
        """The group; with claims all members own what they were given."""
        members = {
            member_id: MemberSpec(
                topics=topics,
                owned=PartitionSet.of(claims.get(member_id, ())),
                generation_id=GenerationId(1 if claims else -1),
                rack_id=self.racks.get(member_id),
            )
            for member_id, topics in self.topics.items()
        }
        if one_more:
            rack = next(iter(self.racks.values()), None)
            members[NEW] = MemberSpec(topics=self.joins or frozenset(self.sizes), rack_id=rack)
        return GroupSpec(members=members, partitions=self.sizes, racks=self.replicas)

    def lines(self) -> Iterator[str]:
        """The group for the other programs, with the member that joins later."""
        for topic, count in self.sizes.items():
            replicas = self.replicas.get(topic) or [frozenset("-")] * count
            yield " ".join(["topic", topic, *(",".join(sorted(racks)) for racks in replicas)])
        for member_id, member in self.spec({}, one_more=True).members.items():
            word = "more" if member_id == NEW else "member"
            yield f"{word} {member_id} {member.rack_id or '-'} {','.join(sorted(member.topics))}"


def main() -> int:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--small", action="store_true", help="a tenth of the members, a hundredth of the partitions"
    )
    parser.add_argument("--no-peers", action="store_true", help="without Java and franz-go")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        beside: Mapping[str, Peer | PeerUnavailable] = (
            dict.fromkeys((GO, JAVA), PeerUnavailable("--no-peers"))
            if options.no_peers
            else stack.enter_context(peers())
        )
        for name, peer in beside.items():
            if isinstance(peer, PeerUnavailable):
                print(f"{name} is not measured: {peer}", flush=True)
        share = 0.1 if options.small else 1
        for case in cases(share):
            own = measure(case)
            for name, peer in beside.items():
                measure_beside(case, own, name, peer, LIMIT_S * share)
    return 0


def cases(share: float) -> list[Case]:
    """The groups; ``share`` makes numbers of members and of partitions of each topic smaller."""

    def count(number: int) -> int:
        return max(2, int(number * share))

    def names(topics: int) -> list[str]:
        return [f"topic-{n:04}" for n in range(topics)]

    def equal(members: int, topics: list[str]) -> dict[MemberId, frozenset[str]]:
        return {MemberId(f"member-{n:05}"): frozenset(topics) for n in range(count(members))}

    def odd(members: int, topics: list[str]) -> dict[MemberId, frozenset[str]]:
        return equal(members, topics) | {MemberId("odd"): frozenset(topics[:1])}

    def sizes(topics: list[str], each: int) -> dict[str, int]:
        return dict.fromkeys(topics, count(each))

    draw = random.Random(1)
    ten, fifty, hundred, many = names(10), names(50), names(100), names(500)
    everyone = equal(1_000, hundred)
    return [
        Case(
            "equal, 1,000 x 50 k",
            equal(1_000, hundred),
            sizes(hundred, 500),
            recorded={"java": (4.8, 28), "franz-go": (22, 35)},
        ),
        Case(
            "equal, 2,000 x 1 M",
            equal(2_000, many),
            sizes(many, 2_000),
            recorded={"java": (100, 1_350), "franz-go": (620, 1_104)},
        ),
        Case(
            "one odd, 800 x 40 k",
            odd(799, fifty),
            sizes(fifty, 800),
            goal_ms=10,
            recorded={"java": (53, 120), "franz-go": (19, 37)},
        ),
        Case(
            "one odd joins, 800 x 40 k",
            odd(799, fifty),
            sizes(fifty, 800),
            joins=frozenset(fifty[:1]),
            recorded={"java": (50, 74_240), "franz-go": (19, 26)},
        ),
        Case(
            "one odd, 2,000 x 1 M",
            odd(1_999, many),
            sizes(many, 2_000),
            goal_ms=350,
            recorded={"java": (8_170,), "franz-go": (897, 4_129)},
        ),
        Case(
            "5 buckets, 1,000 x 10 k",
            {m: frozenset(ten[n % 5 :: 5]) for n, m in enumerate(equal(1_000, ten))},
            sizes(ten, 1_000),
            recorded={"java": (130, 12), "franz-go": (2.6, 4.1)},
        ),
        Case(
            "all different, 1,000 x 10 k",
            {m: frozenset(draw.sample(hundred, 10)) for m in everyone},
            sizes(hundred, 100),
            recorded={"java": (24_120, 6_840), "franz-go": (12, 7.5)},
        ),
        Case(
            "3 racks, 1,000 x 50 k",
            everyone,
            sizes(hundred, 500),
            racks={m: draw.choice("abc") for m in everyone},
            replicas={
                topic: [frozenset(draw.sample("abc", 2)) for _ in range(count(500))]
                for topic in hundred
            },
            recorded={"java": (270, 170)},
        ),
    ]


def measure(case: Case) -> dict[str, Row]:
    """Measure kohort; return the rows by state."""
    unlimited = ConsumerAssigner(most_record_bytes=0)
    before: Shares = {}
    rows: dict[str, Row] = {}
    for number, state in enumerate(STATES):
        spec = case.spec(before, one_more=bool(number))
        plan, plan_ms, plan_wall_ms = best(partial(COOPERATIVE.assign, spec))
        joined = [subscribed(member_id, member) for member_id, member in spec.members.items()]
        leader = partial(unlimited.assign, COOPERATIVE.name, joined, case.sizes)
        _, leader_ms, _ = best(leader)
        row: Row = {
            "case": case.name,
            "state": state,
            "members": len(spec.members),
            "partitions": sum(case.sizes.values()),
            "plan_ms": plan_ms,
            "plan_wall_ms": plan_wall_ms,
            "leader_ms": leader_ms,
        }
        if before:
            row["moves"] = sum(
                len(set(mine) - set(plan.partitions[m])) for m, mine in before.items()
            )
        if case.goal_ms is not None:
            row |= {"goal_ms": case.goal_ms, "goal_met": plan_ms <= case.goal_ms}
        emit("assignors", row)
        rows[state] = row
        before = plan.partitions
    return rows


def measure_beside(
    case: Case, own: Mapping[str, Row], name: str, peer: Peer | PeerUnavailable, limit_s: float
) -> None:
    """Measure another implementation, or print what was recorded of it."""
    if name == GO and case.racks:
        return  # franz-go's balancer does not know racks
    if isinstance(peer, Peer):
        try:
            found = peer.measured(list(case.lines()), limit_s)
        except PeerUnavailable as failed:
            print(f"    {name} failed: {failed}", flush=True)
        else:
            for state, word in STATES.items():
                if word in found:
                    emit_beside(name, own[state], found[word])
                else:
                    print(f"    {name}, {state}: no plan within {limit_s:.0f} s", flush=True)
            return
    for state, recorded in zip(STATES, case.recorded.get(name, ()), strict=False):
        print(f"    {name}, {state}, recorded elsewhere: {recorded:,} ms", flush=True)


def emit_beside(name: str, own: Row, found: Figures) -> None:
    """Print the row of another implementation, with the ratio to kohort's plan in this run."""
    row = {key: own[key] for key in ("case", "state", "members", "partitions")}
    row |= {"beside": name, "plan_ms": found.cpu_ms, "plan_wall_ms": found.wall_ms}
    if "moves" in own:
        row["moves"] = found.moves
    row["times_kohort"] = round(found.cpu_ms / max(own["plan_ms"], 0.1), 2)
    emit("assignors", row | {"warm_up_rounds": found.rounds})


def subscribed(member_id: MemberId, member: MemberSpec) -> JoinedMember:
    return JoinedMember(
        member_id=member_id,
        group_instance_id=None,
        metadata=encode_subscription(
            Subscription(
                topics=member.topics,
                owned=member.owned,
                generation_id=member.generation_id,
                rack_id=member.rack_id,
            )
        ),
    )


def best(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """The result, and the least milliseconds: of CPU time and of time.

    The work is repeated by the rule of all peers (`bench.warming`).
    """
    results: list[Result] = []
    cpu: list[float] = []
    wall: list[float] = []

    def step() -> float:
        start, start_wall = time.process_time(), time.perf_counter()
        results[:] = [work()]
        cpu.append((time.process_time() - start) * 1e3)
        wall.append((time.perf_counter() - start_wall) * 1e3)
        return cpu[-1]

    warm(step)
    return results[0], round(min(cpu), 1), round(min(wall), 1)


if __name__ == "__main__":
    sys.exit(main())
