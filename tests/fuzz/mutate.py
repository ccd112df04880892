"""Mutants of good bytes, from a generator, for the short run of ``make test``.

In: seeds and a generator. Out: mutants with flipped bits, extreme numbers, and pieces that are cut
out, doubled or taken from another seed. Must not know: the targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

ODD_NUMBERS = [
    number.to_bytes(size, "big", signed=number < 0)
    for size in (1, 2, 4, 8)
    for number in (-1, 0, 1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)))
] + [b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x00\x10\x00\x00"]
MOST_BYTES = 4_096


def mutant(seeds: Sequence[bytes], rng: Random) -> bytes:
    """One of the seeds with up to five changes."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        _worsen(data, seeds, rng)
    return bytes(data[:MOST_BYTES])


def _worsen(data: bytearray, seeds: Sequence[bytes], rng: Random) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0:
            if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
        case 1:
            odd = rng.choice(ODD_NUMBERS)
            data[at : at + len(odd)] = odd
        case 2:
            del data[at : at + rng.choice((1, 2, 4, 100))]
        case 3:
            data[at:at] = data[at : at + rng.choice((1, 8, 200))]
        case 4:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[at : at + 16] = other[start : start + 16]
        case _:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 30)))
