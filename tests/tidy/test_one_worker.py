"""Each group of tests that one worker runs has exactly the tests with its mark."""

from __future__ import annotations

import pytest
from tests.one_worker import ONE_WORKER, group_of


def test_the_group_of_a_mark_has_the_tests_with_the_mark(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        marks = (mark for mark in ONE_WORKER if item.get_closest_marker(mark))
        assert group_of(item.nodeid) == next(marks, item.nodeid.partition("::")[0])


def test_tests_that_use_a_node_of_kafka_have_the_mark(request: pytest.FixtureRequest) -> None:
    """Else several workers would start nodes."""
    for item in request.session.items:
        if {"real_kafka", "narrow_kafka"} & set(getattr(item, "fixturenames", ())):
            assert item.get_closest_marker("real_kafka"), f"{item.nodeid} needs mark.real_kafka"
