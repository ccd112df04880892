"""Shared fixtures of the tests of the coordinator's engine."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.engine.coordinator_engine import CoordinatorEngine


@pytest.fixture
def read_in_full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the requests that the engine read in full."""
    made: list[str] = []
    plain = CoordinatorEngine._take

    def noted(self: CoordinatorEngine, known: Any, received: Any, now: Any) -> None:
        made.append(type(received.request).__name__)
        plain(self, known, received, now)

    monkeypatch.setattr(CoordinatorEngine, "_take", noted)
    return made
