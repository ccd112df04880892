"""Topic names, by Kafka's rules."""

from __future__ import annotations

import pytest

from kohort.broker.topics import colliding
from kohort.storage.topic_table import why_illegal


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__x", "x" * 249])
def test_legal(name: str) -> None:
    assert why_illegal(name) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("x" * 250, "at most 249"),
        ("a/b", "characters other than"),
        ("a b", "characters other than"),
        ("a\n", "characters other than"),
        ("é", "characters other than"),
    ],
)
def test_illegal(name: str, part: str) -> None:
    assert part in (why_illegal(name) or "")


def test_dots_and_underscores_collide() -> None:
    assert colliding("a.b", ["x", "a_b"]) == "a_b"
    assert colliding("a_b", ["a.b"]) == "a.b"
    assert colliding("a.b", ["a.b", "a-b"]) is None
    assert colliding("ab", ["a.b"]) is None
