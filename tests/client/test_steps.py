"""Work of a consumer that has to wait: an interrupted wait ends the work at once."""

from __future__ import annotations

import time

import pytest

from kohort.client.consuming.steps import Steps, run


def test_an_interrupted_wait_ends_the_work_before_the_caller_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    def work() -> Steps:
        try:
            yield None
        except KeyboardInterrupt:
            told.append("interrupted")
            raise
        finally:
            told.append("cleaned up")

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    # The exception keeps the generator alive, so that no garbage collector can end the work.
    with pytest.raises(KeyboardInterrupt) as raised:
        run(work())
    assert told == ["interrupted", "cleaned up"], raised
