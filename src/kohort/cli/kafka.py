"""``kohort kafka``: a real Apache Kafka on this machine, for tests of clients.

In: the commands ``fetch``, ``start`` and ``stop``. Out: a running cluster, and a file with its
process ids. Must not know: how Kafka is fetched and started (``kohort.testing``).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import click

from kohort.cli.output import pairs_option, writing
from kohort.model.errors import ConfigError
from kohort.testing.kafka_jars import KAFKA_VERSION, RELEASES, home, installed
from kohort.testing.kafka_jars import fetch as fetch_jars
from kohort.testing.ports import free_ports
from kohort.testing.real_kafka import STOP_TIMEOUT_S, RealKafka, absence, archive_classes

STATE: Final = "running.json"
_POLL_S: Final = 0.1


@click.group()
def kafka() -> None:
    """Fetch, start and stop a real Apache Kafka on loopback."""


_release = click.option(
    "--release",
    type=click.Choice(list(RELEASES)),
    default=KAFKA_VERSION,
    show_default=True,
    help="Release of Apache Kafka.",
)


@kafka.command(short_help="Get Apache Kafka's jars from Maven Central, once.")
@_release
def fetch(release: str) -> None:
    """Get Apache Kafka's jars from Maven Central into the cache directory (60 MB, once).

    Also starts and stops a node, to make an archive of its classes (50 MB) that later starts use.
    """
    jars = RELEASES[release]
    present = installed(jars)
    if present is None:
        click.echo(
            f"Fetching {jars.title} into {home(jars)}; this takes a minute or two.", err=True
        )
    libs = present or fetch_jars(jars)
    archive_classes(jars)
    click.echo(libs)


@kafka.command(short_help="Start a cluster in the background.")
@click.option("--nodes", type=click.Choice(["1", "3"]), default="1", help="Nodes of the cluster.")
@click.option(
    "--port", default=0, help="Port of the first node; further nodes use free ports. 0: free ports."
)
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="Directory of data, logs and state."
)
@pairs_option("--set", "properties", "A server property.")
@click.option("--heap", default="512m", show_default=True, help="Heap of each node.")
@_release
def start(
    *,
    nodes: str,
    port: int,
    directory: Path | None,
    properties: dict[str, str],
    heap: str,
    release: str,
) -> None:
    """Start a cluster in the background and print its bootstrap addresses."""
    jars = RELEASES[release]
    if installed(jars) is None:
        raise ConfigError(absence(jars))
    place = (directory or default_directory()).absolute()
    running = _running(place)
    if running:
        raise ConfigError(
            f"a Kafka is already running from {place} (pid {', '.join(map(str, running))}); "
            "`kohort kafka stop` ends it"
        )
    count = int(nodes)
    ports = [*range(port, port + count), *free_ports(count)] if port else []
    cluster = RealKafka(place, nodes=count, settings=properties, ports=ports, heap=heap, jars=jars)
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    cluster.start()
    state = {"pids": list(cluster.pids.values()), "bootstrap": cluster.bootstrap_servers}
    (place / STATE).write_text(json.dumps(state), encoding="utf-8")
    click.echo(cluster.bootstrap_servers)


@kafka.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="The directory that was given to start.",
)
@click.option("--wipe", is_flag=True, help="Also delete data and logs.")
def stop(directory: Path | None, wipe: bool) -> None:
    """Stop the cluster of `kohort kafka start`."""
    place = (directory or default_directory()).absolute()
    if not (place / STATE).exists():
        raise ConfigError(f"no Kafka was started from {place}")
    pids = _running(place)
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while _running(place) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for pid in _running(place):
        os.kill(pid, signal.SIGKILL)
    (place / STATE).unlink()
    if wipe:
        shutil.rmtree(place)
    click.echo(f"stopped {len(pids)} node{'' if len(pids) == 1 else 's'}", err=True)


def default_directory() -> Path:
    """The directory of a cluster without --dir."""
    return home() / "run"


def _running(place: Path) -> list[int]:
    """The noted processes that still run Kafka from this directory; their ids may be reused."""
    try:
        pids = json.loads((place / STATE).read_text(encoding="utf-8"))["pids"]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [pid for pid in pids if str(place) in _command_line(pid)]


def _command_line(pid: int) -> str:
    processes = Path("/proc")
    if (processes / "self").exists():
        try:
            return (
                (processes / str(pid) / "cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
        except OSError:
            return ""
    # macOS has no /proc; a small Linux image may have no ps.
    asked = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout
