"""Random groups for range and roundrobin, in the lines that ``java/Plans.java`` reads and prints.

``python -m tests.policies.java_plans`` prints groups with the plans of Kafka's own assignors: the
content of ``java/plans.txt``. Kafka must be fetched, and Java must have a compiler.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.java import java_output

from kohort.model.ids import GroupInstanceId, MemberId, ProtocolName
from kohort.policies.registry import ASSIGNORS
from kohort.policies.spec import GroupSpec, MemberSpec

PROGRAM = Path(__file__).parent / "java" / "Plans.java"
RECORDED = PROGRAM.with_name("plans.txt")
RACKS = ("a", "b", "c")


def random_group(seed: int) -> list[str]:
    """The lines of one group: static and dynamic members, racks, unequal subscriptions."""
    rng = random.Random(seed)
    lines = [f"group {rng.choice(('range', 'roundrobin'))}"]
    topics = [f"t{n}" for n in range(rng.randrange(1, 6))]
    racks = rng.choice((0, 0, 1, 2, 3))
    count = rng.randrange(1, 8)
    for topic in topics[rng.randrange(2) :]:
        count = count if rng.random() < 0.5 else rng.randrange(1, 8)
        places = (",".join(rng.sample(RACKS, rng.randrange(racks + 1))) for _ in range(count))
        lines.append(" ".join(["topic", topic, *(place or "-" for place in places)]))
    at = rng.choice(("-", "abc", "abc-", "abcd", "x"))
    everyone = rng.random() < 0.4
    for number in rng.sample(range(20), rng.randrange(1, 7)):
        mine = [topic for topic in topics if everyone or rng.random() < 0.6]
        instance = f"i{rng.randrange(100):02}{number:02}" if rng.random() < 0.3 else "-"
        lines.append(f"member m{number:02} {instance} {rng.choice(at)} {','.join(mine) or '-'}")
    return [*lines, "end"]


def javas_plans(lines: Sequence[str]) -> list[str]:
    """The output of the Java program."""
    return java_output(PROGRAM, lines)


def kohorts_plans(lines: Sequence[str]) -> Iterator[str]:
    """The same output from kohort's assignors."""
    name, places, members = "", dict[str, list[frozenset[str]]](), dict[MemberId, MemberSpec]()
    for line in lines:
        match line.split():
            case ["group", name]:
                places, members = {}, {}
            case ["topic", topic, *racks]:
                places[topic] = [frozenset(each.split(",")) - {"-"} for each in racks]
            case ["member", member_id, instance, rack, topics]:
                members[MemberId(member_id)] = MemberSpec(
                    topics=frozenset(topics.split(",")) - {"-"},
                    group_instance_id=None if instance == "-" else GroupInstanceId(instance),
                    rack_id=None if rack == "-" else rack,
                )
            case _:
                sizes = {topic: len(racks) for topic, racks in places.items()}
                spec = GroupSpec(members=members, partitions=sizes, racks=places)
                plan = ASSIGNORS[ProtocolName(name)].assign(spec).partitions
                for member_id in sorted(plan):
                    yield " ".join([member_id, *map(str, plan[member_id])])
                yield "end"


if __name__ == "__main__":
    asked = [line for seed in range(60) for line in random_group(seed)]
    RECORDED.write_text("\n".join([*asked, "plans", *javas_plans(asked), ""]), encoding="utf-8")
