"""Clocks of several logs."""

from __future__ import annotations

from itertools import chain

import pytest
from tests.explain.test_stories import done, joins, member

from kohort.explain.explaining import Explained, Explainer
from kohort.explain.reading import LogReader


def client(at: float, generation: int, gave: str = "", got: str = "") -> list[str]:
    """The lines of a Java consumer at the time ``at`` of its clock."""
    who = "[Consumer clientId=svc, groupId=g]"

    def line(at: float, text: str) -> str:
        return f"[2026-03-01 10:{int(at // 60):02}:{at % 60:06.3f}] INFO {who} {text}"

    return [
        *([line(at - 1, f"Revoke previously assigned partitions {gave}")] if gave else []),
        line(at, f"Successfully synced group in generation Generation{{generationId={generation}, "
                 "memberId='m', protocol='range'}"),
        *([line(at, f"Adding newly assigned partitions: {got}")] if got else []),
    ]  # fmt: skip


def explain(**logs: list[str]) -> tuple[Explainer, Explained]:
    events = []
    for name, lines in logs.items():
        reader = LogReader(name)
        events += [e for n, text in enumerate(lines, 1) for e in reader.read(n, text)]
    explainer = Explainer().feed_all(sorted(events, key=lambda e: e.at or 0))
    (found,) = explainer.finish()
    return explainer, found


def broker(times: list[float]) -> list[str]:
    return list(
        chain.from_iterable(
            [joins(at - 2, n, member("svc", n)), *done(at, n + 1, members=1, leader_s=0.01)]
            for n, at in enumerate(times)
        )
    )


def test_a_clock_that_is_ahead_is_estimated_told_and_corrected() -> None:
    times = [60.0, 120.0, 180.0]
    late = [
        line
        for n, at in enumerate(times)
        for line in client(at + 7.02, n + 1, "t-0" if n else "", "t-0")
    ]
    explainer, found = explain(broker=broker(times), consumer=late)
    (skew,) = explainer.skews
    assert (skew.file, skew.reference, skew.count) == ("consumer", "broker", 3)
    assert skew.seconds == pytest.approx(7.01)
    rows = list(found.story.rebalances)
    assert [row.generation for row in rows] == [1, 2, 3], "one row of both logs"
    assert [round(stop.seconds, 3) for row in rows for stop in row.stops] == [1.0, 1.0]
    (first, _) = [stop for row in rows for stop in row.stops]
    assert first.end == pytest.approx(rows[1].assigned, abs=0.05)


def test_clocks_that_agree_are_not_told() -> None:
    times = [60.0, 120.0]
    lines = [line for n, at in enumerate(times) for line in client(at + 0.03, n + 1)]
    assert explain(broker=broker(times), consumer=lines)[0].skews == []


def test_a_static_member_that_comes_back_into_its_generation_has_no_wrong_clock() -> None:
    who = "[Consumer instanceId=pod-0, clientId=svc, groupId=g]"

    def synced(at: float, generation: int) -> str:
        return (
            f"[2026-03-01 10:{int(at // 60):02}:{at % 60:06.3f}] INFO {who} Successfully synced "
            f"group in generation Generation{{generationId={generation}, memberId='m', "
            "protocol='range'}"
        ).replace(".", ",", 1)

    explainer, _ = explain(broker=broker([60.0]), consumer=[synced(75.0, 1)])
    assert explainer.skews == []
    later = [synced(75.0, 1), synced(127.0, 2)]
    explainer, _ = explain(broker=broker([60.0, 120.0]), consumer=later)
    (skew,) = explainer.skews
    assert (round(skew.seconds), skew.count) == (7, 1), "a later generation tells the skew"


def test_the_last_to_join_is_found_by_corrected_clocks() -> None:
    """A client with a clock that is 7 s ahead asked first, and seems to have asked last."""
    times = [60.0, 120.0, 180.0]

    def lines(name: str, ahead: float, waits: float) -> list[str]:
        found = []
        for n, at in enumerate(times):
            synced = client(at + ahead, n + 1)[0].replace("clientId=svc", f"clientId={name}")
            synced = synced.replace("memberId='m'", f"memberId='{name}'")
            asked = at + ahead - waits
            head = f"[2026-03-01 10:{int(asked // 60):02}:{asked % 60:06.3f}] INFO [Consumer "
            found += [f"{head}clientId={name}, groupId=g] (Re-)joining group", synced]
        return found

    logs = {"ahead": lines("ahead", 7.0, 2.0), "other": lines("other", 0.0, 1.0)}
    explainer, found = explain(broker=broker(times), **logs)
    assert [skew.file for skew in explainer.skews] == ["ahead"]
    for row in found.story.rebalances:
        asked = [join.member for join in row.joins if join.member in logs]
        assert asked == ["ahead", "other"]
        assert [waited.member for waited in row.waited] == ["other"]
