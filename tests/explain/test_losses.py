"""Patterns of lost commits, partitions and members."""

from __future__ import annotations

import pytest
from tests.explain.test_stories import explain, line, names

CLIENT = "[2026-03-01 10:00:00,000] INFO [Consumer clientId=c, groupId=g] "
MEMBER = "svc-12345678-1234-1234-1234-123456789012"
JOINS = "joins group g in Stable state."


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CLIENT + "Offset commit failed on partition t-0 at offset 5: gone", "commit refused"),
        (CLIENT + "Lost previously assigned partitions t-0, t-1", "partitions lost"),
        (
            line(0, "Group g could not complete rebalance because no members rejoined."),
            "nobody joined",
        ),
        (line(0, "Group g removed dynamic members who haven't joined: [m-1]"), "members removed"),
        (
            line(0, f"Pending member {MEMBER} in group g has been removed after session timeout "
                 "expiration."),
            "new member never joined",
        ),
        (
            line(0, "Setting empty assignments for members [m-1] of g for generation 5."),
            "empty assignment",
        ),
        (
            line(0, f"Static member with groupInstanceId=i and unknown member id {JOINS} Replacing "
                 "previously mapped member i-1 with this groupInstanceId."),
            "static member returned",
        ),
    ],
    ids=lambda value: value if len(value) < 30 else "",
)  # fmt: skip
def test_losses_of_a_group_are_named(text: str, name: str) -> None:
    found = explain([text])
    assert names(found) == [name]
    assert found.findings[0].evidence
