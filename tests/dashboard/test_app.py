"""The dashboard over HTTP: its files, its stream, and requests that it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import quote

import pytest
from tests.dashboard.played import Played
from tests.dashboard.serving import served
from tests.explain.test_metering import settled

from kohort.dashboard import app
from kohort.dashboard.assets import asset
from kohort.dashboard.board import Board
from kohort.dashboard.trying import Trying
from kohort.explain.deployments import Deployment
from kohort.model.errors import ConfigError

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def board() -> Board:
    board = Board(HOSTILE)
    board.feed(settled(1, 10.0, a=[0, 1], b=[2, 3]))
    return board


@pytest.fixture
def port(board: Board) -> Iterator[int]:
    with served(board) as port:
        yield port


@contextmanager
def asked(
    port: int, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> Iterator[HTTPResponse]:
    """The answer to a request; its connection is closed after the block."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, headers=named)
        with closing(connection.getresponse()) as answer:
            yield answer


def events(answer: HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Names and values of the events of a stream."""
    name = ""
    for line in answer:
        key, _, text = line.decode().rstrip("\n").partition(": ")
        if key == "event":
            name = text
        elif key == "data":
            yield name, json.loads(text)


def test_the_page_is_static_and_its_policy_permits_its_own_files_only(port: int) -> None:
    with asked(port, "/") as answer:
        assert answer.status == 200
        assert answer.read().decode() == asset("index.html")
        policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in policy
    for name in (
        "picture.js",
        "canvas.js",
        "timeline.js",
        "whatif.js",
        "dashboard.js",
        "style.css",
    ):
        with asked(port, f"/static/{name}") as answer:
            assert answer.read().decode() == asset(name)
            assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/static/index.html", "/static/..%2fapp.py", "/nothing"):
        with asked(port, path) as answer:
            assert answer.status == 404
            assert answer.headers["content-security-policy"] == policy
    assert "//" not in asset("index.html"), "nothing is loaded from elsewhere"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:80"])
def test_another_name_of_this_address_is_refused(port: int, host: str) -> None:
    for path in ("/", "/events", "/static/style.css"):
        with asked(port, path, Host=host) as answer:
            assert answer.status == 400
            assert HOSTILE not in answer.read().decode()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:9309"])
def test_names_of_the_loopback_are_accepted(port: int, host: str) -> None:
    with asked(port, "/", Host=host) as answer:
        assert answer.status == 200


def test_nothing_can_be_changed(port: int) -> None:
    with asked(port, "/events", method="POST") as answer:
        assert answer.status == 405


def no_evidence(group: str) -> Deployment:
    raise ConfigError(f"the evidence has no group {group!r}")


def test_a_what_if_is_begun_by_the_page_itself_only(board: Board) -> None:
    body = json.dumps({"group": HOSTILE, "changes": [{"policy": "sticky"}]})
    typed = "application/json"
    with served(board, Trying(no_evidence)) as port:
        own = f"http://127.0.0.1:{port}"
        with asked(port, "/what-if") as answer:
            assert "cooperative-sticky" in dict(json.loads(answer.read())["policies"])
        for headers, status in (
            ({}, 415),
            ({"content_type": "text/plain"}, 415),
            ({"content_type": typed, "origin": "http://evil.example"}, 403),
        ):
            for method in ("POST", "DELETE"):
                with asked(port, "/what-if", method, body, **headers) as answer:
                    assert answer.status == status
        for wrong in ("{", json.dumps({"group": "g", "seeds": 99}), "[" * 10_000):
            with asked(port, "/what-if", "POST", wrong, content_type=typed) as answer:
                assert answer.status == 400
        long = " " * 30_000
        with asked(port, "/what-if", "POST", long, content_type=typed) as answer:
            assert answer.status == 413
        with asked(port, "/what-if", "OPTIONS") as answer:
            assert answer.status == 405, "a browser asks so before a request of another origin"
            assert answer.headers["access-control-allow-origin"] is None
        with asked(port, "/what-if", "POST", body, content_type=typed, origin=own) as answer:
            assert answer.status == 202
        with asked(port, "/events") as answer:
            states = (told for name, told in events(answer) if name == "what-if")
            last = next(told for told in states if told["state"] == "failed")
        assert last["why"] == f"the evidence has no group {HOSTILE!r}"
        with asked(port, "/what-if", "DELETE", content_type=typed, origin=own) as answer:
            assert answer.status == 202


def test_the_stream_tells_all_and_then_what_is_new(port: int, board: Board) -> None:
    with asked(port, "/events?group=g") as answer:
        stream = events(answer)
        name, groups = next(stream)
        assert (name, groups["source"]) == ("groups", HOSTILE)
        name, group = next(stream)
        assert name == "group"
        assert sorted(group["picture"]["partitions"]) == ["t-0", "t-1", "t-2", "t-3"]
        board.feed(settled(2, 20.0, b=[0, 1, 2, 3]))
        assert next(stream)[0] == "groups"
        name, group = next(stream)
    assert [each["generation"] for each in group["picture"]["rebalances"]] == [2]
    assert not group["picture"]["whole"]


def test_a_group_with_any_name_is_asked_for(port: int) -> None:
    with asked(port, f"/events?group={quote(HOSTILE)}") as answer:
        stream = events(answer)
        next(stream)
        assert next(stream) == ("missing", {"group": HOSTILE})


def test_streams_are_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_STREAMS", 1)
    with asked(port, "/events") as first:
        assert next(events(first))[0] == "groups"
        with asked(port, "/events") as second:
            assert (second.status, second.read()) == (503, b"1 pages are open; close one")


def test_streams_end_with_the_server(board: Board) -> None:
    with served(board) as port, ExitStack() as stack:
        stream = events(stack.enter_context(asked(port, "/events")))
        next(stream)
        board.closed = True
        assert list(stream) == []


def test_the_page_of_the_lab_disturbs_its_groups(board: Board) -> None:
    play = Played("g", "h")
    with served(board, play=play) as port:
        own = {"content_type": "application/json", "origin": f"http://127.0.0.1:{port}"}
        with asked(port, "/lab") as answer:
            assert b"lab.js" in answer.read()
        for body, status, said in [
            ('{"act": "kill", "member": "c1"}', 202, ""),
            ('{"act": "kill", "member": "c2"}', 400, "c2 is disturbed already"),
            ('{"act": "kill"}', 400, "'member'"),
            ("[]", 400, "list indices must be integers or slices, not str"),
            ("", 400, "Expecting value: line 1 column 1 (char 0)"),
        ]:
            with asked(port, "/lab/act", "POST", body, **own) as answer:
                assert (answer.status, answer.read().decode()) == (status, said)
        foreign = {**own, "origin": "http://evil.example"}
        with asked(port, "/lab/act", "POST", "{}", **foreign) as answer:
            assert answer.status == 403
        with asked(port, "/lab/state") as answer:
            assert json.loads(answer.read())["log"] == ["kill c1"]
        with asked(port, "/lab/test_group.py") as answer:
            assert answer.headers["content-disposition"] == 'attachment; filename="test_group.py"'
            assert b"def test_disturbed_group" in answer.read()


def test_a_dashboard_has_no_page_of_the_lab(port: int) -> None:
    with asked(port, "/lab") as answer:
        assert answer.status == 404
