"""The two kinds of sessions hand the same bytes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kohort.broker.session import BufferedSession, Session, session_maker


class Host:
    """Keeps what sessions hand on."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def opened(self, session: Session) -> bool:
        return True

    def received(self, session: Session, data: bytes | memoryview) -> None:
        self.got.append(bytes(data))

    def closed(self, session: Session) -> None:
        pass

    def ready(self, session: Session) -> None:
        pass


LOOPS = [(asyncio.SelectorEventLoop, BufferedSession), (uvloop.new_event_loop, Session)]


@pytest.mark.parametrize(("make_loop", "kind"), LOOPS)
def test_each_loop_has_its_kind_of_session_and_the_bytes_arrive(
    make_loop: Callable[[], asyncio.AbstractEventLoop], kind: type[Session]
) -> None:
    host: Any = Host()
    parts = [b"x" * 100, b"y" * 300_000]

    async def send() -> None:
        loop = asyncio.get_running_loop()
        node: Any = SimpleNamespace()
        make = session_maker(loop, host)
        assert type(make(node)) is kind
        server = await loop.create_server(lambda: make(node), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(send())
    assert b"".join(host.got) == b"".join(parts)
