"""Comparisons of the dashboard: the requests of a browser, the progress, the costs, a cancel."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.test_what_if import GROUP, STOPPED
from tests.waiting import until

from kohort.dashboard.trying import MOST_CHANGES, Busy, Trying, Wanted
from kohort.explain.deployments import Deployment
from kohort.lab.changes import Change
from kohort.model.errors import ConfigError

POLICY = {"policy": "cooperative-sticky"}


def state(trying: Trying) -> dict[str, Any]:
    """The last state that a browser with none gets."""
    found = trying.news(-1)
    assert found is not None
    return found[1]


def ended(trying: Trying) -> Callable[[], bool]:
    return lambda: state(trying)["state"] not in {"reading", "running"}


def test_a_request_names_a_policy_and_settings() -> None:
    settings = "session.timeout.ms=30000, group.instance.id=each"
    wanted = Wanted.of({"group": "g", "changes": [{**POLICY, "settings": settings}], "seeds": 2})
    (change,) = wanted.changes
    assert wanted.seeds == 2
    assert change == Change(
        title="cooperative-sticky, session.timeout.ms=30000, group.instance.id=each",
        policy="cooperative-sticky",
        settings=(("session.timeout.ms", "30000"), ("group.instance.id", "each")),
    )


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], "expected an object"),
        ({"changes": []}, "expected an object"),
        ({"group": "g", "changes": "all"}, "at most 8 changes"),
        ({"group": "g", "changes": [POLICY] * (MOST_CHANGES + 1)}, "at most 8 changes"),
        ({"group": "g", "seeds": 0}, "expected 1 to 20"),
        ({"group": "g", "seeds": "five"}, "expected 1 to 20"),
        ({"group": "g", "changes": [{"policy": "best"}]}, "'best' is unknown"),
        ({"group": "g", "changes": [{"settings": "session.timeout.ms"}]}, "expected NAME=VALUE"),
        ({"group": "g", "changes": [{"settings": "speed=1"}]}, "setting 'speed' is unknown"),
        ({"group": "g", "changes": [{"policy": 7}]}, "are texts"),
        ({"group": "g", "changes": ["sticky"]}, "is an object"),
        ({"group": "g", "changes": [{}]}, "changes nothing"),
    ],
)
def test_other_requests_are_refused_with_the_wrong_value(values: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Wanted.of(values)


@pytest.mark.slow
def test_a_comparison_tells_its_progress_and_then_the_costs_side_by_side() -> None:
    trying = Trying(lambda group: replace(GROUP, group=group))
    assert state(trying) == {"state": "none"}
    trying.begin(Wanted.of({"group": "orders", "changes": [POLICY], "seeds": 2}))
    seen = [state(trying)]

    def done() -> bool:
        if seen[-1] != state(trying):
            seen.append(state(trying))
        return ended(trying)()

    until(done, "the comparison")
    assert [each["state"] for each in seen[:-1]] != []
    totals = {each["total"] for each in seen if each["state"] == "running"}
    assert totals <= {4}
    last = seen[-1]
    assert (last["state"], last["group"]) == ("done", "orders")
    assert last["headline"].startswith("Group orders: 3 members, 6 partitions")
    present, other = last["outcomes"]
    assert (present["cells"][0], other["cells"][0]) == ("as it is", "cooperative-sticky")
    assert " ± " in other["cells"][1]
    assert other["cells"][1].endswith(" %)")
    for outcome in (present, other):
        picture = outcome["picture"]
        assert sorted(picture["partitions"]) == [f"t-{number}" for number in range(6)]
        assert picture["owned"], "each outcome has the owners of its first run"
        assert picture["rebalances"]
    trying.end()
    assert multiprocessing.active_children() == []


def test_a_cancelled_comparison_ends_its_processes_and_another_may_begin() -> None:
    reading, go_on = threading.Event(), threading.Event()

    def find(group: str) -> Deployment:
        reading.set()
        assert go_on.wait(30)
        events = tuple(replace(STOPPED, at=50.0 + 100 * n) for n in range(100))
        return replace(GROUP, group=group, incidents=events)

    trying = Trying(find)
    wanted = Wanted.of({"group": "g", "changes": [POLICY], "seeds": 20})
    trying.begin(wanted)
    assert reading.wait(30)
    with pytest.raises(Busy):
        trying.begin(wanted)
    go_on.set()
    until(lambda: state(trying)["state"] == "running", "the runs")
    trying.cancel()
    until(ended(trying), "the end")
    assert state(trying) == {"group": "g", "state": "cancelled"}
    trying.end()
    assert multiprocessing.active_children() == []


def test_thin_evidence_is_told() -> None:
    def find(group: str) -> Deployment:
        raise ConfigError(f"the evidence has no group {group!r}")

    trying = Trying(find)
    trying.begin(Wanted.of({"group": "g"}))
    until(ended(trying), "the answer")
    assert state(trying) == {
        "group": "g",
        "state": "failed",
        "why": "the evidence has no group 'g'",
    }
