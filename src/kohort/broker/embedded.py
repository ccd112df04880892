"""A whole broker inside another program: a thread with a loop, and a folder.

In come a folder (or none) and Kafka's settings; out go an address to connect clients to and, at the
end, an exit that leaves the data behind, or nothing when the folder was its own. For tests, demos
and programs that bring their own Kafka. It must not know what it is used for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from kohort.broker.serve import DEFAULT_LISTEN, BrokerServer
from kohort.host.settings import BrokerSettings, parse_settings
from kohort.model.errors import ConfigError
from kohort.storage.files import RealFiles, TemporaryFiles


class EmbeddedBroker:
    """A Kafka-compatible broker in a thread of this process, on a free loopback port.

    Example::

        with EmbeddedBroker(**{"num.partitions": 8}) as broker:
            connect(broker.bootstrap_servers)

    Args:
        data_dir: where topics and groups live; None: a temporary folder that is removed at the end,
            with files that are not synced to the disk.
        nodes: as how many nodes it appears to clients, each with an address of its own.
        history: a file to record everything to that happens to groups; see ``kohort check``.
        settings: Kafka's settings by dotted name (underscores are taken too). All defaults are
            Kafka's: the first rebalance of a group waits 3 s unless
            ``group.initial.rebalance.delay.ms`` says otherwise.

    Raises:
        ConfigError: a setting is unknown or not allowed.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        nodes: int = 1,
        history: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self._nodes = nodes
        self._history = None if history is None else Path(history)
        self._settings = parse_settings(BrokerSettings, settings)
        self._own_folder: tempfile.TemporaryDirectory[str] | None = None
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._server: BrokerServer | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each node for clients, with commas between them.

        Raises:
            ConfigError: the broker does not run.
        """
        if self._server is None:
            raise ConfigError("the embedded broker does not run: start it first")
        return self._server.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """Where the data is.

        Raises:
            ConfigError: the broker was never started, and has no folder yet.
        """
        if self._data_dir is None:
            raise ConfigError("the embedded broker was not started: it has no folder yet")
        return self._data_dir

    def start(self) -> EmbeddedBroker:
        """Serve; returns when clients can connect.

        Raises:
            StorageError: the folder is in use or damaged.
        """
        if self._thread is not None:
            raise ConfigError("the embedded broker runs already, or was closed: make a new one")
        if self._data_dir is None:
            self._own_folder = tempfile.TemporaryDirectory(prefix="kohort-broker-")
            self._data_dir = Path(self._own_folder.name) / "data"
        server = BrokerServer(
            data_dir=self._data_dir,
            listen=DEFAULT_LISTEN,
            nodes=self._nodes,
            settings=self._settings,
            history=self._history,
            files=RealFiles() if self._own_folder is None else TemporaryFiles(),
        )
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(server)), name="kohort-broker", daemon=True
        )
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            failure = self._failure
            self.close()
            raise failure
        self._server = server
        return self

    def close(self) -> None:
        """Stop cleanly: answers that wait for the disk leave, everything is synced.

        Closing twice is harmless.

        Raises:
            StorageError: the disk failed the broker, while it ran or now.
        """
        thread, self._server = self._thread, None
        if thread is not None and thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
        if self._own_folder is not None:
            self._own_folder.cleanup()
            self._own_folder = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(self, *_raised: object) -> None:
        self.close()

    async def _run(self, server: BrokerServer) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server.on_failure = self._stop.set
        try:
            await server.start()
            self._started.set()
            await self._stop.wait()
            await server.stop()
            self._failure = server.failure
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()
