"""Serves a board to a test, on a free port of the loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kohort.dashboard.app import LOCAL
from kohort.dashboard.board import Board
from kohort.dashboard.playing import Play
from kohort.dashboard.serving import Server
from kohort.dashboard.trying import Trying


@contextmanager
def served(board: Board, trying: Trying | None = None, play: Play | None = None) -> Iterator[int]:
    """The port."""
    server = Server(board, "127.0.0.1", 0, LOCAL, trying, play=play)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.port
    finally:
        server.end()
        thread.join()
