"""``kohort pipeline`` and its signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.cli.spark.pipeline import _of_group, _set_on_signals

STOPPING = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def _handlers_kept() -> Iterator[None]:
    before = [signal.getsignal(number) for number in STOPPING]
    yield
    for number, handler in zip(STOPPING, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_handlers_kept")
@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_sets_the_event_while_the_main_thread_holds_its_lock(
    number: signal.Signals,
) -> None:
    stop = threading.Event()
    _set_on_signals(stop, stop)
    # As ``Event.wait`` holds it between two of its lines.
    with stop._cond:  # type: ignore[attr-defined]
        signal.raise_signal(number)
    assert stop.wait(30)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_handlers_kept")
@pytest.mark.parametrize("second", STOPPING)
def test_sigterm_drains_and_a_second_signal_stops(second: signal.Signals) -> None:
    stop, drain = threading.Event(), threading.Event()
    _set_on_signals(stop, drain)
    signal.raise_signal(signal.SIGTERM)
    assert drain.wait(30)
    assert not stop.is_set()
    signal.raise_signal(second)
    assert stop.wait(30)


@pytest.mark.parametrize(
    ("left", "settings", "told"),
    [
        (True, {}, "left group g"),
        (False, {}, "group g was not left yet"),
        (True, {"group.instance.id": "lake-0"}, "group g waits for its static member lake-0 for"),
        (True, {"group_instance_id": "lake-0"}, "group g waits for its static member lake-0 for"),
    ],
)
def test_the_last_line_does_not_say_that_a_static_member_has_left(
    left: bool, settings: dict[str, str], told: str
) -> None:
    """Its partitions stay with it for session.timeout.ms, as the manifest of Kubernetes wants."""
    config = cast("Any", SimpleNamespace(group="g", kafka=settings))
    assert _of_group(config, cast("Any", SimpleNamespace(left=left))).startswith(told)
