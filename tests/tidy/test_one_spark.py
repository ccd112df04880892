"""The tests that one worker runs are those with the mark ``spark``."""

from __future__ import annotations

import pytest
from tests.one_spark import SPARK, group_of


def test_the_group_of_spark_has_the_tests_with_the_mark(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        marked = item.get_closest_marker("spark") is not None
        assert group_of(item.nodeid) == (SPARK if marked else item.nodeid.partition("::")[0])
