"""An ``Admin`` for commands, which reports an unreachable cluster or a late answer.

In: settings. Out: an ``Admin``, and a line on standard error if an answer takes longer than a
second. Must not know: requests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from kohort.cli.output import configured
from kohort.client.admin import Admin
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.errors import RequestFailed
from kohort.model.errors import ErrorCode

REFUSED_TRIES: Final = 4
"""Refused connections before a command gives up: 0.7 s with the default back-off."""

QUIET_S: Final = 1.0
"""A command that waits longer than this prints a line."""


@contextmanager
def asking(bootstrap: str, settings: ClientSettings | None = None) -> Iterator[Admin]:
    """An ``Admin`` for one command.

    Raises:
        ConfigError: a setting is wrong.
        RequestFailed: the request was refused; for an unknown topic with a hint.
    """
    settings = settings or parse_client_settings({**configured(), "bootstrap.servers": bootstrap})
    longest_s = settings.socket_connection_setup_timeout_ms / 1_000

    def say() -> None:
        click.echo(
            f"kohort: waiting for an answer from {bootstrap}; gives up after {longest_s:g} s if no "
            "broker can be reached",
            err=True,
        )

    timer = threading.Timer(QUIET_S, say)
    timer.daemon = True
    with Admin(settings) as admin:
        admin.refused_tries = REFUSED_TRIES
        timer.start()
        try:
            yield admin
        except RequestFailed as error:
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if unknown and error.about.startswith("topic "):
                hint = "`kohort topics list` shows all topics"
                raise RequestFailed(error.code, error.about, hint) from error
            raise
        finally:
            timer.cancel()
