"""The optimum for check 30 equals that of another algorithm."""

from __future__ import annotations

from random import Random

from tests.policies.flow import optimum

from kohort.history.fewest_moves import fewest_moves


def test_the_optimum_equals_that_of_another_flow_algorithm() -> None:
    random = Random(30)
    for _ in range(200):
        sizes = {f"t{n}": random.randrange(1, 9) for n in range(random.randrange(1, 4))}
        wanted = {
            f"m{n}": frozenset(random.sample(sorted(sizes), random.randrange(1, len(sizes) + 1)))
            for n in range(random.randrange(1, 6))
        }
        held: dict[tuple[str, str], int] = {}
        for topic, size in sizes.items():
            wanting = sorted(member for member in wanted if topic in wanted[member])
            for _ in range(size if wanting else 0):
                key = (random.choice(wanting), topic)
                held[key] = held.get(key, 0) + (random.random() < 0.8)
        assert fewest_moves(sizes, wanted, held) == optimum(sizes, wanted, held)[::2]
