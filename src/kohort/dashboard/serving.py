"""Serves the dashboard with uvicorn: a bound socket, and an end that closes open streams.

In: an application, an address. Out: an HTTP server. Must not know: groups. Needs the extra
``dashboard``.
"""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn

from kohort.dashboard.app import application
from kohort.dashboard.board import Board
from kohort.dashboard.playing import Play
from kohort.dashboard.trying import Trying


class _Ending(uvicorn.Server):
    """Ends the streams of the board at a signal: uvicorn waits for open answers."""

    def __init__(self, config: uvicorn.Config, board: Board) -> None:
        super().__init__(config)
        self._board = board

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        self._board.closed = True
        super().handle_exit(sig, frame)


class Server:
    """A server that is bound and does not serve yet. Port 0 takes a free one; see `application`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self,
        board: Board,
        host: str,
        port: int,
        hosts: tuple[str, ...],
        trying: Trying | None = None,
        *,
        play: Play | None = None,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port: int = self._socket.getsockname()[1]
        self._board = board
        self._trying = trying
        config = uvicorn.Config(
            application(board, hosts, trying, play),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        self._server = _Ending(config, board)

    def serve(self) -> None:
        """Serve until `end`, or in the main thread until SIGINT or SIGTERM."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.end()
            self._socket.close()
            if self._trying is not None:
                self._trying.end()

    def end(self) -> None:
        """End `serve`, from any thread."""
        self._board.closed = True
        self._server.should_exit = True
