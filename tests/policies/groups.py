"""Short notation for groups: ``group(t=3, u=2)``, ``member("t u", owned="t0 u1", g=3)``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort.model.ids import GenerationId, GroupInstanceId, MemberId, TopicPartition
from kohort.policies.spec import GroupSpec, MemberSpec, Shares


def partitions(text: str) -> frozenset[TopicPartition]:
    """Partitions from ``t0 t2 u1``; write ``t1-0`` if the topic's name ends with a digit."""
    found = []
    for word in text.split():
        match = re.fullmatch(r"(.+?)-?(\d+)" if "-" not in word else r"(.+)-(-?\d+)", word)
        assert match, word
        found.append(TopicPartition(match[1], int(match[2])))
    return frozenset(found)


def member(topics: str, owned: str = "", *, g: int = -1, instance: str | None = None) -> MemberSpec:
    return MemberSpec(
        topics=frozenset(topics.split()),
        owned=partitions(owned),
        generation_id=GenerationId(g),
        group_instance_id=None if instance is None else GroupInstanceId(instance),
    )


def group(sizes: Mapping[str, int], members: Mapping[str, MemberSpec]) -> GroupSpec:
    return GroupSpec(
        members={MemberId(name): spec for name, spec in members.items()}, partitions=sizes
    )


def again(
    spec: GroupSpec,
    plan: Shares,
    *,
    without: str = "",
    add: Mapping[str, MemberSpec] | None = None,
    sizes: Mapping[str, int] | None = None,
    topics: str | None = None,
    g: int = 2,
) -> GroupSpec:
    """The next round: every member owns its part of the plan."""
    members = {
        name: MemberSpec(
            topics=frozenset(topics.split()) if topics is not None else old.topics,
            owned=frozenset(plan[name]),
            generation_id=GenerationId(g),
            group_instance_id=old.group_instance_id,
        )
        for name, old in spec.members.items()
        if name not in without.split()
    }
    return GroupSpec(
        members=members | {MemberId(n): m for n, m in (add or {}).items()},
        partitions=sizes or spec.partitions,
    )


def shown(plan: Shares) -> dict[str, str]:
    """A plan as short text, for example ``{"c1": "t-0 t-1"}``."""
    return {name: " ".join(str(p) for p in mine) for name, mine in plan.items()}
