"""The pages in a headless Chromium: drawn, explored with keys and pointer, without execution."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.chromium import Chromium, program
from tests.dashboard.played import Played
from tests.dashboard.serving import served
from tests.explain.test_deployments import RESTART
from tests.explain.test_metering import commit, settled
from tests.explain.test_stories import done, joins, member
from tests.lab.test_what_if import GROUP

from kohort.cli.explain.command import explain
from kohort.cli.explain.what_if import what_if
from kohort.dashboard.board import Board, Seen
from kohort.dashboard.trying import Trying
from kohort.lab.compared_policies import compared_policy
from kohort.lab.scenarios.base import Setup
from kohort.lab.scenarios.registry import scenario
from kohort.lab.scenarios.running import run
from kohort.storage.fact_files import write_history

HOSTILE = "<img src=x onerror=alert(1)>"

pytestmark = [pytest.mark.slow, pytest.mark.optional_peer]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    path = program()
    if path is None:
        pytest.skip("no Chromium on the PATH")
    folder = tmp_path / "profile"
    with Chromium(path, folder, dark=True) as browser:
        yield browser
    shutil.rmtree(folder, ignore_errors=True)


def told(browser: Chromium) -> str:
    return str(browser.run("document.querySelector('.told').textContent"))


def pixels(browser: Chromium, x: float, y: float) -> list[int]:
    """The colour of the canvas at a place, in red, green, blue."""
    place = f"({x} * devicePixelRatio, {y} * devicePixelRatio, 1, 1)"
    found = browser.run(f"[...timeline.pen.getImageData{place}.data].slice(0, 3)")
    return [int(value) for value in found]


def harmless(browser: Chromium, own: str, *logged_too: str) -> None:
    """No script of a name ran, nothing else failed, and nothing was asked for elsewhere."""
    bad = {"Runtime.exceptionThrown", "Page.javascriptDialogOpening"}
    assert [event for event in browser.events if event["method"] in bad] == []
    logged = [e["params"]["entry"] for e in browser.events if e["method"] == "Log.entryAdded"]
    assert [entry["text"] for entry in logged if entry["level"] == "error"] == [*logged_too]
    assert [url for url in browser.requested() if not url.startswith(own)] == []
    assert browser.run("document.querySelectorAll('img').length") == 0


def test_the_dashboard_follows_a_group_and_runs_no_names(browser: Chromium) -> None:
    board = Board("kafka:9092")
    board.feed(settled(1, 1000.0, **{"pod-1": [0, 1, 2, 3]}))
    for number in range(4):
        board.feed(commit(number, 5, 1012.0))

    def look(at: float, lag: int) -> None:
        board.looked([Seen(group="g", state="Stable", protocol="r", members=(), lag=lag)], at)

    look(1020.0, 500)
    with served(board, Trying(lambda group: replace(GROUP, group=HOSTILE))) as port:
        own = f"http://127.0.0.1:{port}/"
        browser.open(own)
        browser.until("document.querySelector('#groups a')")
        browser.run("document.querySelector('#groups a').click()")
        browser.until("timeline && timeline.data.order.length === 4")
        board.feed(settled(2, 1030.0, **{"pod-1": [0, 1], HOSTILE: [2]}))
        board.feed(commit(2, 9, 1031.0))
        look(1040.0, 9000)
        browser.until("document.querySelector('#rebalances tbody')?.rows[0]?.cells[9].textContent")
        row = browser.run("document.querySelector('#rebalances tbody').rows[0].innerText")
        assert "a new member joined (likely)" in row
        assert HOSTILE in row
        assert "≤ 19.0 s" in row
        order = "[...document.querySelectorAll('#headline, #rebalances, #findings')]"
        assert browser.run(f"{order}.map((each) => each.id)") == [
            *("headline", "rebalances", "findings"),
        ]
        sentence = browser.run("document.querySelector('#headline').textContent")
        assert sentence.startswith("Group g: 1 rebalance at 1970-01-01 00:17:10.000, because a new")
        numbers = browser.run("document.querySelector('#numbers').innerText")
        assert "partitions moved\n1, fewest possible 1 measured" in numbers
        # The live picture stands still for the rest of the test.
        browser.run("timeline.view = { from: 0, to: 40000 }, timeline.draw()")
        browser.run("timeline.scroller.focus()")
        browser.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight")
        assert told(browser).startswith(f"00:17:10.000  t-2: owned by {HOSTILE} for ")
        browser.press("ArrowDown")
        assert told(browser) == "00:17:10.000  t-3: nobody consumes it  generation 2  lag 500"
        browser.press("m")
        assert browser.run(
            "[...Array(timeline.data.rows).keys()].map((r) => timeline.data.name(r))"
        ) == [
            "pod-1",
            HOSTILE,
        ]
        browser.press("ArrowDown", "ArrowDown", "m", "f")
        browser.run("timeline.draw()")
        # A block has the colour of its owner, a partition without one is striped.
        x = browser.run("timeline.place(35000)")
        row_0, row_3 = (browser.run(f"50 + timeline.row * {row}") + 3 for row in (0, 3))
        assert pixels(browser, x + 5, row_0) != pixels(browser, x + 5, row_0 + 2 * 18)
        stripes = {tuple(pixels(browser, x + dx, row_3)) for dx in range(8)}
        assert len(stripes) > 1
        assert browser.run("timeline.data.lag.length") == 2
        box = browser.run("(({x, y}) => [x, y])(timeline.scroller.getBoundingClientRect())")
        browser.point(box[0] + x, box[1] + row_3)
        browser.until("!document.querySelector('.tip').hidden")
        tip = browser.run("document.querySelector('.tip').textContent")
        assert "t-3: nobody consumes it" in tip
        browser.run("timeline.cursor = { row: 0, at: 35000 }")
        browser.press("Enter")
        assert "generation 2" in browser.run(
            "document.querySelector('#rebalances .chosen').dataset.told"
        )
        moves = f"pod-1 → {HOSTILE}: 1 (t-2)\npod-1 → no owner yet: 1 (t-3)"
        assert browser.run("document.querySelector('.detail .pairs').innerText") == moves
        assert browser.run("document.querySelector('.detail .moves').textContent") == (
            "Partitions: kept 2, moved 1, fewest possible 1, given up and without an owner yet 1."
        )
        board.feed(commit(0, 9, 1033.0))  # a stop that ends later is in the detail, too
        browser.until("document.querySelector('.detail h3').textContent.includes('21.0 s')")
        browser.until("whatif.policies")
        browser.run(
            "find('#changes select').value = 'cooperative-sticky', find('#seeds').value = 1"
        )
        browser.run("find('#compare').click()")
        browser.until("document.querySelectorAll('#outcome .beside canvas').length === 2")
        costs = "[...find('#outcome table').tBodies[0].rows].map((row) => row.cells[0].innerText)"
        assert browser.run(costs) == ["as it is", "cooperative-sticky"]
        assert browser.run("find('#outcome p').textContent").startswith(f"Group {HOSTILE}: ")
        assert browser.run("find('#cancel').hidden")
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(20, 23, 28)", "the page prefers dark colours"
        harmless(browser, own)


def test_the_page_of_explain_is_explored_with_keys(browser: Chromium, tmp_path: Path) -> None:
    log = tmp_path / "hostile.log"
    lines = [
        joins(0, 4, member(HOSTILE, 1)),
        *done(1, 5),
        joins(60, 5, member("b", 2)),
        *done(63, 6),
    ]
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    made = tmp_path / "page.html"
    assert CliRunner().invoke(explain, [str(log), "--html", str(made)]).exit_code == 0
    browser.open(made.as_uri())
    browser.run("document.querySelector('.scroller').focus()")
    browser.press("ArrowRight", "ArrowRight", "Enter")
    assert "generation 6: a new member joined" in told(browser)
    assert browser.run("document.querySelector('tr.chosen').cells[1].textContent") == "6"
    detail = browser.run("document.querySelector('.detail').innerText")
    assert "generation 6: a new member joined" in detail
    assert "The sources do not tell the owners of the partitions." in detail
    browser.run("location.hash = '#g0r0'")
    browser.until(
        f"document.querySelector('.waits td').textContent === {json.dumps('members join')}"
    )
    assert HOSTILE in browser.run("document.querySelector('.waits').innerText")
    harmless(browser, made.as_uri())


def test_a_rebalance_in_detail_has_its_members_and_the_partitions_that_moved(
    browser: Chromium, tmp_path: Path
) -> None:
    setup = Setup(policy=compared_policy("range"), members=3, partitions=6, seed=1)
    history, made = tmp_path / "run.jsonl", tmp_path / "page.html"
    write_history(history, run(scenario("restart"), setup).history)
    assert CliRunner().invoke(explain, [str(history), "--html", str(made)]).exit_code == 0
    browser.open(made.as_uri())
    browser.run("document.querySelectorAll('td a')[1].click()")
    browser.until("!document.querySelector('.detail').hidden")
    wait = browser.run("document.querySelector('.detail .wait').textContent")
    assert wait.startswith("The group waited ")
    assert wait.endswith(" joined last.")
    rows = "[...document.querySelectorAll('.waits tbody tr')]"
    names = browser.run(f"{rows}.map((row) => row.cells[0].innerText)")
    last = browser.run("document.querySelector('.waits .last').cells[0].innerText")
    assert names[:3] == ["until it begins", "members join", "leader assigns"]
    assert last == names[-1]
    assert last in wait
    dots = "[...document.querySelectorAll('.waits .dot')].map((dot) => parseFloat(dot.style.left))"
    places = browser.run(dots)
    assert places == sorted(places)
    assert len(places) == 3, "one member left, and two joined"
    # All partitions of the member that left were gained by the others.
    changes = "timelines.get('g0').data.changes(1)"
    found = browser.run(f"{changes}.filter(({{before, after}}) => before !== after)")
    assert found
    assert browser.run(f"{changes}.length") == 6
    browser.run("document.querySelector('.matrix').focus()")
    browser.press("ArrowRight")
    first = browser.run("document.querySelector('.matrix + .told').textContent")
    assert first.startswith("orders-")
    assert " from " in first
    browser.run("document.querySelector('.detail .tools button').click()")
    assert browser.run("document.querySelector('.detail .tools button').textContent") == (
        "Only changes"
    )
    browser.run("document.querySelector('.matrix').focus()")
    browser.press("Home")
    assert browser.run("document.querySelector('.matrix + .told').textContent").startswith(
        "orders-0: "
    )
    piece = "timelines.get('g0').data.lanes[0].find((piece) => piece[3] > piece[0])"
    begin, _, _, ready = browser.run(piece)
    row = browser.run("timelines.get('g0').data.order.indexOf(0)")
    words = browser.run(f"timelines.get('g0').data.words({row}, {(begin + ready) / 2})")
    assert "and not read yet" in words
    # A process and its next start have one colour; two at a time have two.
    owners = [["a-1", "a 1", "a"], ["b", "b", ""], ["a-2", "a 2", "a"]]
    for begin, colours in ((2000, [0, 1, 0]), (500, [0, 1, 2])):
        owned = [[0, 0, 0, 1000], [1, 1, 0, 3000], [2, 2, begin, 3000]]
        values = {
            "whole": True,
            "base": 0,
            "dated": False,
            "live": False,
            "first": 0,
            "last": 3000,
            "since": 0,
            "partitions": ["t-0", "t-1", "t-2"],
            "owners": owners,
            "owned": owned,
            "open": [],
            "from": 0,
            "rebalances": [],
            "lag": [],
        }
        assert browser.run(f"new Picture({json.dumps(values)}).colours") == colours
    harmless(browser, made.as_uri())


def test_keys_on_the_page_of_the_lab_disturb_both_groups(browser: Chromium) -> None:
    board, play = Board("kafka:9092", tells={HOSTILE: dict}), Played("g", HOSTILE)
    board.feed(settled(1, 1000.0, c1=[0, 1]))
    board.looked([Seen(group="g", state="Stable", protocol="r", members=(), lag=3)], 1001.0)
    with served(board, play=play) as port:
        own = f"http://127.0.0.1:{port}/"
        browser.open(f"{own}lab")
        browser.until("sides.size === 2 && sides.get('g').timeline")
        heads = browser.run("[...document.querySelectorAll('h2')].map((head) => head.textContent)")
        assert heads == ["g: range", f"{HOSTILE}: range"]
        assert browser.run("sides.get('g').timeline.data.order.length") == 2
        browser.press("s", "K")
        browser.until("document.querySelectorAll('#log div').length === 2")
        assert play.acts == [("stall", "c1"), ("kill", "c1")]
        browser.run("find('#member').value = 'c2', find('[data-act=pause]').click()")
        browser.until("find('#refused').textContent === 'c2 is disturbed already'")
        assert len(play.acts) == 2
        assert browser.run("find('#sides').innerText").count("1.5 s") == 2
        refused = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
        harmless(browser, own, refused)


def test_the_page_of_a_comparison_has_the_owners_under_each_policy(
    browser: Chromium, tmp_path: Path
) -> None:
    log, made = tmp_path / f"{HOSTILE.replace('/', '')}.log", tmp_path / "page.html"
    log.write_text("\n".join([*RESTART, ""]), encoding="utf-8")
    words = [str(log), "--policy", "cooperative-sticky", "--seeds", "1", "--processes", "1"]
    assert CliRunner().invoke(what_if, [*words, "--html", str(made)]).exit_code == 0
    browser.open(made.as_uri())
    heads = "[...document.querySelectorAll('h4')].map((head) => head.textContent)"
    assert browser.run(heads) == [
        "as it is: the owners in one run",
        "cooperative-sticky: the owners in one run",
    ]
    assert browser.run("document.querySelectorAll('canvas').length") == 2
    cells = (
        "[...document.querySelector('table').tBodies[0].rows].map((row) => row.cells[0].innerText)"
    )
    assert browser.run(cells)[-2:] == ["as it is", "cooperative-sticky"]
    browser.run("document.querySelector('.scroller').focus()")
    browser.press("End", "Enter")
    assert browser.run("document.querySelector('.detail .moves').textContent").startswith(
        "Partitions: kept "
    )
    assert "NaN" not in browser.run("document.body.innerText")
    harmless(browser, made.as_uri())
