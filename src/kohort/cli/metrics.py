"""``kohort metrics``: metrics of the groups of any Kafka, served for Prometheus.

In: the address of a cluster. Out: a page of metrics over HTTP. Must not know: the metrics
(``kohort.cli.groups.metrics``).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kohort.cli.asking import asking
from kohort.cli.consume import ended_by_signals
from kohort.cli.explain.offsets_topic import keep_following
from kohort.cli.groups.choice import Groups, only_groups
from kohort.cli.groups.watch import look_at
from kohort.cli.output import bootstrap_option, configured, listen_option, note
from kohort.client.admin import Admin
from kohort.model.errors import ConfigError, KohortError

if TYPE_CHECKING:
    from kohort.cli.groups.metrics import GroupCollector


@click.command()
@only_groups
@listen_option(9308)
@bootstrap_option
def metrics(*, names: tuple[str, ...], listen: tuple[str, int], bootstrap: str) -> None:
    """Serve metrics of groups for Prometheus, of any Kafka.

    Lag, members and states are asked for at each scrape. Rebalances are counted from the
    offsets topic, which is read once from its start: this user needs the permission.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - extra

        from kohort.cli.groups.metrics import GroupCollector  # noqa: PLC0415 - as above
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'kohort[prometheus]'") from error
    host, port = listen
    groups = Groups(names=names, every=not names)
    given = configured(bootstrap)
    with asking(bootstrap) as admin:
        look_at(admin, groups)
    with Admin(given) as admin:
        registry = CollectorRegistry()
        collector = GroupCollector(admin, groups, told=lambda error: note(f"kohort: {error}"))
        registry.register(collector)
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(f"--listen {host}:{port} cannot be used: {error.strerror}") from error
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

    def failed(error: KohortError) -> None:
        nonlocal told
        if str(error) != told:
            note(f"kohort: rebalances are not counted: {error}; trying again")
        told = str(error)

    keep_following(
        settings,
        collector.feed,
        collector.begin,
        failed,
        ended=threading.Event(),
        started=lambda _names: collector.restart(),
    )
