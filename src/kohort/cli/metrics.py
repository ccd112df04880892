"""``kohort metrics``: metrics of the groups of any Kafka, served for Prometheus.

In: the address of a cluster. Out: a page of metrics over HTTP. Must not know: the metrics
(``kohort.cli.groups.metrics``).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kohort.cli.asking import asking
from kohort.cli.consume import ended_by_signals
from kohort.cli.explain.offsets_topic import follow_offsets
from kohort.cli.groups.choice import Groups, only_groups
from kohort.cli.groups.watch import look_at
from kohort.cli.output import bootstrap_option, configured, note
from kohort.client.admin import Admin
from kohort.client.config import parse_client_settings
from kohort.model.errors import ConfigError, KohortError

if TYPE_CHECKING:
    from kohort.cli.groups.metrics import GroupCollector

AGAIN_S = 5.0
"""The offsets topic is tried again after this time, if it cannot be read."""


@click.command()
@only_groups
@click.option(
    "--listen",
    default="127.0.0.1:9308",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the page; port 0: a free port.",
)
@bootstrap_option
def metrics(*, names: tuple[str, ...], listen: str, bootstrap: str) -> None:
    """Serve metrics of groups for Prometheus, of any Kafka.

    Lag, members and states are asked for at each scrape. Rebalances are counted from the
    offsets topic, which is read once from its start: this user needs the permission.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - extra

        from kohort.cli.groups.metrics import GroupCollector  # noqa: PLC0415 - as above
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'kohort[prometheus]'") from error
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(f"--listen is {listen!r}, expected HOST:PORT")
    groups = Groups(names=names, every=not names)
    given = {**configured(), "bootstrap.servers": bootstrap}
    settings = parse_client_settings(given)
    with asking(bootstrap, settings) as admin:
        look_at(admin, groups)
    with Admin(settings) as admin:
        registry = CollectorRegistry()
        collector = GroupCollector(admin, groups, told=lambda error: note(f"kohort: {error}"))
        registry.register(collector)
        try:
            server, thread = start_http_server(int(port), host, registry)
        except OSError as error:
            raise ConfigError(f"--listen {listen} cannot be used: {error.strerror}") from error
        try:
            with suppress(KeyboardInterrupt), ended_by_signals():
                click.echo(f"http://{host}:{server.server_port}/metrics")
                _follow(given, collector)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _follow(settings: dict[str, str], collector: GroupCollector) -> None:
    told = ""
    while True:
        collector.restart()
        try:
            follow_offsets(settings, collector.feed, collector.begin)
        except KohortError as error:
            if str(error) != told:
                note(f"kohort: rebalances are not counted: {error}; trying again")
            told = str(error)
            time.sleep(AGAIN_S)
