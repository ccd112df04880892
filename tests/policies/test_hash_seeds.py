"""Plans are equal in every process: a retried join must not get another plan (KAFKA-12898)."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import pytest

from kohort.model.ids import GenerationId, MemberId, TopicPartition
from kohort.policies.consumer_groups import join_protocols
from kohort.policies.registry import ASSIGNORS, assignors
from kohort.policies.spec import GroupSpec, MemberSpec


def digest() -> str:
    """Plans and offers for random groups from a seed, as one number."""
    rng = random.Random(11)
    seen = hashlib.sha256()
    for _ in range(20):
        sizes = {f"t{n}": rng.randrange(1, 9) for n in range(8)}
        everything = [TopicPartition(t, n) for t, count in sizes.items() for n in range(count)]
        members = {
            MemberId(f"m{n}"): MemberSpec(
                topics=frozenset(rng.sample(sorted(sizes), rng.randrange(1, 8))),
                owned=frozenset(rng.sample(everything, rng.randrange(5))),
                generation_id=GenerationId(rng.randrange(-1, 3)),
            )
            for n in range(9)
        }
        for name in sorted(ASSIGNORS):
            plan = ASSIGNORS[name].assign(GroupSpec(members=members, partitions=sizes)).partitions
            seen.update(repr(list(plan.items())).encode())
        for member in members.values():
            offers = join_protocols(assignors("sticky,range"), member.topics, owned=member.owned)
            seen.update(repr(offers).encode())
    return seen.hexdigest()


@pytest.mark.slow
def test_plans_and_offers_do_not_depend_on_the_hash_seed() -> None:
    code = "from tests.policies.test_hash_seeds import digest; print(digest())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == digest()
