"""``kohort broker``: run the embedded broker in this process until a signal ends it.

In: flags and settings. Out: a line on standard output when the broker is ready, log lines on
standard error, and an exit status: 0 after a clean stop, 1 if the disk failed, 2 if the broker
could not start. Nothing is written before all settings are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from kohort.broker.serve import Address, BrokerServer
from kohort.cli.output import DIRECTORY, FILE, settings_option
from kohort.host.group_log import KafkaFormatter
from kohort.host.large_pages import use_large_pages
from kohort.host.settings import BrokerSettings, parse_settings, read_properties
from kohort.model.errors import ConfigError
from kohort.storage.errors import StorageError

LOGGERS = ("kohort", "org.apache.kafka")
"""Kohort's own lines, and the coordinator's lines with Kafka's wording and logger name."""

GARBAGE_CHECK_OBJECTS = 250_000
"""Python searches for reference cycles after this number of new objects."""


@click.command()
@click.option(
    "--port",
    default=9092,
    show_default=True,
    help="Port to listen on; 0: a free port. Further nodes use the next ports.",
)
@click.option(
    "--nodes",
    default=1,
    show_default=True,
    help="Number of cluster nodes that clients see; their ids begin with node.id.",
)
@click.option(
    "--data-dir", required=True, type=DIRECTORY,
    help="Directory of topics and groups; made if it does not exist.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--advertised",
    metavar="HOST:PORT",
    help="Address that clients connect to; by default the address of --host and --port. With "
    "several nodes one address for each, separated by commas, or the address of the first node: "
    "further nodes have the next ports.",
)
@click.option("--config", "config_path", type=FILE, help="Properties file of settings.")
@settings_option("A setting by Kafka's name; overrides --config. May be repeated.")
@click.option("--history", type=FILE, help="File for a history of all groups, for `kohort check`.")
@click.option(
    "--log-file",
    type=click.Path(path_type=Path),
    help="File for log lines, instead of standard error.",
)
@click.option("--log-level", default="INFO", show_default=True, help="Lowest level that is logged.")
def broker(
    *,
    port: int,
    nodes: int,
    data_dir: Path,
    host: str,
    advertised: str | None,
    config_path: Path | None,
    assignments: dict[str, str],
    history: Path | None,
    log_file: Path | None,
    log_level: str,
) -> None:
    """Run an embedded Kafka-compatible broker.

    By default it listens on the loopback interface. It keeps all data in one directory and has
    Kafka's settings with Kafka's defaults. SIGTERM and Ctrl-C stop it cleanly.
    """
    pairs = read_properties(config_path) if config_path else {}
    settings = parse_settings(BrokerSettings, pairs | assignments)
    server = BrokerServer(
        data_dir=data_dir,
        listen=Address(host, port),
        advertised=[Address.parse(one.strip()) for one in (advertised or "").split(",") if one],
        nodes=nodes,
        settings=settings,
        history=history,
    )
    set_up_logging(log_level, log_file)
    allow_many_files()
    runner(run_until_signal(server))
    if server.failure is not None:
        click.echo(f"kohort: broker stopped: {server.failure}", err=True)
        raise SystemExit(1)


async def run_until_signal(server: BrokerServer) -> None:
    """Start the server, print that it is ready, and stop it on SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server.on_failure = stop.set
    await server.start()
    collect_garbage_seldom()
    click.echo(f"kohort broker ready on {server.bootstrap_servers} (data in {server.data_dir})")
    pages = loop.create_task(use_large_pages())
    try:
        await stop.wait()
    finally:
        pages.cancel()
        try:
            await server.stop()
        except StorageError as error:
            server.failure = server.failure or error


def runner(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop if it is installed, else on asyncio's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop  # noqa: PLC0415 (an extra)
    except ImportError:
        pass
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as loop_runner:
        loop_runner.run(main)


def collect_garbage_seldom() -> None:
    """Search for reference cycles seldom, and never among the present objects.

    By default Python searches the youngest objects after 700 new ones. While thousands of requests
    are parked it searches all of them again and again, without finding garbage: a pause for all
    clients and a twelfth of a rebalance's cost. The broker makes hardly any cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_CHECK_OBJECTS, 20, 100)


def allow_many_files() -> None:
    """Raise the soft limit of open files to the hard limit, for connections and logs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def set_up_logging(level: str, path: Path | None) -> None:
    """Send log lines in Kafka's pattern to a file or to standard error.

    Raises:
        ConfigError: the level is unknown, or the file cannot be opened.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"--log-level is {level!r}, expected DEBUG, INFO, WARNING or ERROR")
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        try:
            handler = logging.FileHandler(path)
        except OSError as error:
            raise ConfigError(f"cannot log to {path}: {error.strerror}") from error
    handler.setFormatter(KafkaFormatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(number)
        logger.addHandler(handler)
