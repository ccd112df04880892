"""``kohort dashboard``: groups on a page of a browser, live, of any Kafka or of files.

In: the address of a cluster, or logs and histories. Out: a page over HTTP. Must not know: the page
(``kohort.dashboard``), the meaning of records (``kohort.explain``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import click

from kohort.cli.asking import asking
from kohort.cli.consume import ended_by_signals
from kohort.cli.dashboard_sources import (
    FileSource,
    deployment_in_cluster,
    follow_records,
    in_threads,
    look_often,
)
from kohort.cli.groups.choice import Groups, only_groups
from kohort.cli.groups.watch import look_at
from kohort.cli.output import Duration, cluster_option, configured, listen_option, note
from kohort.dashboard.board import Board
from kohort.history.fewest_moves import fewest_moves
from kohort.model.errors import ConfigError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@cluster_option(None, "Show the groups of this cluster.")
@only_groups
@listen_option(9309)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further name under which browsers may ask for the page. May be repeated.",
)
@click.option(
    "--interval",
    type=Duration(0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks at the groups or the files.",
)
def dashboard(
    *,
    files: tuple[Path, ...],
    bootstrap: str | None,
    names: tuple[str, ...],
    listen: tuple[str, int],
    hosts: tuple[str, ...],
    interval: float,
) -> None:
    """Show groups on a page of a browser, live.

    With --bootstrap-server the groups of any Kafka: states, members and lag, and from the offsets
    topic the owners of each partition and each rebalance, explained when it ends. With FILES, or
    folders of them, the groups in logs and histories, as `kohort explain` reads them; files that
    grow are read again. Nothing is written and no group is joined. The page of a group compares
    policies and settings, as `kohort what-if` does.
    """
    if bool(files) == (bootstrap is not None):
        raise ConfigError("expected files, or --bootstrap-server of a cluster, and not both")
    host, port = listen
    if wild := [name for name in hosts if "*" in name]:
        raise ConfigError(f"--allow-host is {wild[0]!r}, expected one name without *")
    try:
        from kohort.dashboard.app import LOCAL  # noqa: PLC0415 - of an extra
        from kohort.dashboard.serving import Server  # noqa: PLC0415 - of an extra
        from kohort.dashboard.trying import Trying  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'kohort[dashboard]'") from error
    source = bootstrap or ", ".join(map(str, files))
    board = Board(source, fewest_moves, names)
    if bootstrap:
        reading = _cluster(board, bootstrap, names, interval)
        trying = Trying(partial(deployment_in_cluster, configured(bootstrap)))
    else:
        shown_files = FileSource(board, files)
        reading, trying = _files(shown_files, interval), Trying(shown_files.deployment)
    with suppress(KeyboardInterrupt), ended_by_signals(), reading:
        try:
            server = Server(board, host, port, (*LOCAL, host, *hosts), trying)
        except OSError as error:
            raise ConfigError(f"--listen {host}:{port} cannot be used: {error.strerror}") from error
        if host not in _LOOPBACK:
            note(f"kohort: any browser that reaches {host} shows the names of groups and clients")
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"http://{shown}:{server.port}/")
        server.serve()


@contextmanager
def _cluster(
    board: Board, bootstrap: str, names: tuple[str, ...], interval: float
) -> Iterator[None]:
    """Threads that follow a cluster."""
    given = configured(bootstrap)
    groups = Groups(names=names, every=not names)
    with asking(bootstrap) as admin:
        look_at(admin, groups)  # a wrong address or a refusal ends the command
    with in_threads(
        lambda ended: follow_records(board, given, ended),
        lambda ended: look_often(board, given, groups, interval, ended),
    ):
        yield


@contextmanager
def _files(source: FileSource, interval: float) -> Iterator[None]:
    """A thread that reads files again when they grow."""
    source.read()  # a missing file ends the command
    with in_threads(lambda ended: source.follow(interval, ended)):
        yield
