"""Back-off: doubling, bounded, with a fifth of jitter either way, the same for the same seed."""

from __future__ import annotations

import random

from kohort.member.backoff import Backoff
from kohort.model.instants import Millis


def delays(seed: int, count: int = 8) -> list[int]:
    backoff = Backoff(Millis(100), Millis(1_000), random.Random(seed))
    return [backoff.next() for _ in range(count)]


def test_delays_double_up_to_the_limit() -> None:
    for seed in range(50):
        for delay, middle in zip(delays(seed), [100, 200, 400, 800, 1_000, 1_000], strict=False):
            assert 0.8 * middle <= delay <= 1.2 * middle


def test_the_same_seed_gives_the_same_delays_and_others_give_others() -> None:
    assert delays(1) == delays(1)
    assert delays(1) != delays(2)


def test_success_starts_over() -> None:
    backoff = Backoff(Millis(100), Millis(1_000), random.Random(1))
    for _ in range(100):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 120
