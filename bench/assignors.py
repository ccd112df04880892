"""Measures assignors: CPU milliseconds for a plan, beside recorded figures of Java and franz-go.

*Plan*: from a group spec to the partitions of each member. *Leader*: from the bytes of all
subscriptions to the bytes of all assignments. Each case is measured for a new group (``full``) and
for the same group with one member more (``one more``); moves are counted there. The figures of Java
and of franz-go are recorded: from an earlier run of their programs on another machine, not from
this run. They measure a plan.

    python -m bench.assignors
    python -m bench.assignors --small
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from bench.results import emit

from kohort.embedded.consumer import Subscription, encode_subscription
from kohort.model.ids import GenerationId, MemberId
from kohort.model.join import JoinedMember
from kohort.model.partition_set import PartitionSet
from kohort.policies.consumer_groups import ConsumerAssigner
from kohort.policies.cooperative import CooperativeStickyAssignor
from kohort.policies.spec import GroupSpec, MemberSpec, Shares

COOPERATIVE = CooperativeStickyAssignor()
NEW = MemberId("new")
ROUNDS = 3
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Case:
    """A group, its goal, and recorded figures of other implementations.

    ``recorded`` has milliseconds for (full, one more) by the name of the implementation.
    """

    name: str
    topics: Mapping[MemberId, frozenset[str]]
    sizes: Mapping[str, int]
    racks: Mapping[MemberId, str] = field(default_factory=dict)
    replicas: Mapping[str, list[frozenset[str]]] = field(default_factory=dict)
    goal_ms: int | None = None
    recorded: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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
            everything = frozenset(self.sizes)
            rack = next(iter(self.racks.values()), None)
            members[NEW] = MemberSpec(topics=everything, rack_id=rack)
        return GroupSpec(members=members, partitions=self.sizes, racks=self.replicas)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--small", action="store_true", help="a tenth of the members, a hundredth of the partitions"
    )
    options = parser.parse_args()
    for case in cases(0.1 if options.small else 1):
        measure(case)
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
            recorded={"java": (27, 61), "franz-go": (7.9, 15.6)},
        ),
        Case(
            "equal, 2,000 x 1 M",
            equal(2_000, many),
            sizes(many, 2_000),
            recorded={"java": (147, 2_541), "franz-go": (78, 730)},
        ),
        Case(
            "one odd, 800 x 40 k",
            odd(799, fifty),
            sizes(fifty, 800),
            goal_ms=10,
            recorded={"java": (280, 59_388), "franz-go": (62, 10.9)},
        ),
        Case(
            "one odd, 2,000 x 1 M",
            odd(1_999, many),
            sizes(many, 2_000),
            goal_ms=350,
            recorded={"franz-go": (3_453, 755)},
        ),
        Case(
            "5 buckets, 1,000 x 10 k",
            {m: frozenset(ten[n % 5 :: 5]) for n, m in enumerate(equal(1_000, ten))},
            sizes(ten, 1_000),
            recorded={"java": (935, 5_608), "franz-go": (5.6, 5.4)},
        ),
        Case(
            "all different, 1,000 x 10 k",
            {m: frozenset(draw.sample(hundred, 10)) for m in everyone},
            sizes(hundred, 100),
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
            recorded={"java": (474, 481)},
        ),
    ]


def measure(case: Case) -> None:
    unlimited = ConsumerAssigner(most_record_bytes=0)
    before: Shares = {}
    for number, state in enumerate(("full", "one more")):
        spec = case.spec(before, one_more=bool(number))
        plan, plan_ms = best(partial(COOPERATIVE.assign, spec))
        joined = [subscribed(member_id, member) for member_id, member in spec.members.items()]
        leader = partial(unlimited.assign, COOPERATIVE.name, joined, case.sizes)
        _, leader_ms = best(leader)
        row = {
            "case": case.name,
            "state": state,
            "members": len(spec.members),
            "partitions": sum(case.sizes.values()),
            "plan_ms": plan_ms,
            "leader_ms": leader_ms,
        }
        if before:
            row["moves"] = sum(
                len(set(mine) - set(plan.partitions[m])) for m, mine in before.items()
            )
        if case.goal_ms is not None:
            row |= {"goal_ms": case.goal_ms, "goal_met": plan_ms <= case.goal_ms}
        emit("assignors", row)
        for name, recorded in case.recorded.items():
            print(f"    {name}, recorded elsewhere: {recorded[number]:,} ms", flush=True)
        before = plan.partitions


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


def best(work: Callable[[], Result]) -> tuple[Result, float]:
    """The result and the least CPU milliseconds of some rounds."""
    least = float("inf")
    for _ in range(ROUNDS - 1):
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    start = time.process_time()
    result = work()
    return result, round(min(least, time.process_time() - start) * 1e3, 1)


if __name__ == "__main__":
    sys.exit(main())
