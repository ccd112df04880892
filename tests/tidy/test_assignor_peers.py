"""The groups and figures that ``bench.assignors`` exchanges with the programs beside it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from bench.assignor_peers import (
    BESIDE,
    GO,
    JAVA,
    Figures,
    Peer,
    PeerUnavailable,
    figures,
    go_command,
)
from bench.assignors import STATES, Case, cases, measure_beside
from bench.results import Row, rows_in

from kohort.model.ids import MemberId

GROUP = Case(
    "two members",
    {MemberId("a"): frozenset({"t", "u"}), MemberId("b"): frozenset({"u"})},
    {"t": 2, "u": 1},
    recorded={JAVA: (1_234, 5.6)},
)
RACKS = Case(
    "racks",
    {MemberId("a"): frozenset({"t"})},
    {"t": 2},
    racks={MemberId("a"): "x"},
    replicas={"t": [frozenset("xy"), frozenset("z")]},
)
OWN: dict[str, Row] = {
    "full": {"case": "c", "state": "full", "members": 2, "partitions": 3, "plan_ms": 2.0},
    "one more": {
        "case": "c",
        "state": "one more",
        "members": 3,
        "partitions": 3,
        "plan_ms": 0.0,
        "moves": 1,
    },
}


def printing(text: str) -> Peer:
    return Peer(GO, [sys.executable, "-c", text])


def test_other_programs_get_the_group_and_the_member_that_joins_later() -> None:
    assert list(GROUP.lines()) == [
        *("topic t - -", "topic u -"),
        *("member a - t,u", "member b - u", "more new - t,u"),
    ]


def test_other_programs_get_the_racks() -> None:
    assert list(RACKS.lines()) == ["topic t x,y z", "member a x t", "more new x t"]


def test_an_ended_program_loses_only_the_line_that_it_did_not_end() -> None:
    found = figures("full 1.50 2.25 0 9\nmore 30")
    assert found == {"full": Figures(cpu_ms=1.5, wall_ms=2.25, moves=0, rounds=9)}


def test_rows_of_other_programs_have_ratios_to_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    peer = printing("print('full 5.00 4.00 0 9'); print('more 1.00 0.50 7 8')")
    measure_beside(GROUP, OWN, GO, peer, 60)
    full, more = [row for line in capsys.readouterr().out.splitlines() for row in rows_in(line)]
    assert (full["beside"], full["plan_ms"], full["plan_wall_ms"]) == (GO, 5.0, 4.0)
    assert full["times_kohort"] == 2.5
    assert "moves" not in full
    assert (more["moves"], more["times_kohort"]) == (7, 10.0)


def test_a_slow_program_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    lines = "print('full 5.00 4.00 0 9', flush=True); import threading; threading.Event().wait()"
    measure_beside(GROUP, OWN, GO, printing(lines), 1)
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "    franz-go, one more: no plan within 1 s"


def test_recorded_figures_are_called_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    measure_beside(GROUP, OWN, JAVA, PeerUnavailable("no Java"), 60)
    assert capsys.readouterr().out.splitlines() == [
        "    java, full, recorded elsewhere: 1,234 ms",
        "    java, one more, recorded elsewhere: 5.6 ms",
    ]


def test_a_program_that_fails_is_named_and_its_recorded_figures_follow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measure_beside(GROUP, OWN, JAVA, printing("import sys; sys.exit('no memory')"), 60)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "    java failed: no memory"
    assert len(printed) == 3


def test_franz_go_is_not_compared_where_racks_count(capsys: pytest.CaptureFixture[str]) -> None:
    measure_beside(RACKS, OWN, GO, printing("raise SystemExit(1)"), 60)
    assert capsys.readouterr().out == ""


def test_without_go_its_figures_are_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailable, match="no Go"):
        go_command(tmp_path)


def fake_go(folder: Path, script: str) -> None:
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_failed_build_names_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_go(tmp_path, "echo first >&2; echo no module >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailable, match="go build: no module"):
        go_command(tmp_path)


def test_a_build_that_does_not_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_go(tmp_path, "while :; do :; done")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bench.assignor_peers.BUILD_S", 0.1)
    with pytest.raises(PeerUnavailable, match="took longer"):
        go_command(tmp_path)


def test_programs_are_pinned_and_answer_for_the_same_states() -> None:
    assert re.search(r"franz-go v\d+\.\d+\.\d+\n", (BESIDE / "go.mod").read_text())
    for program in ("Plans.java", "plans.go"):
        text = (BESIDE / program).read_text(encoding="utf-8")
        assert all(f'measure("{word}"' in text for word in STATES.values())


def test_recorded_figures_name_implementations_that_are_measured() -> None:
    assert {name for case in cases(0.01) for name in case.recorded} == {JAVA, GO}
