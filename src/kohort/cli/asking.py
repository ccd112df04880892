"""How commands ask a cluster: they say soon that nobody listens, and say that they wait.

In come settings; out comes an ``Admin``, and on standard error a line when an answer takes longer
than a second, so that nobody wonders what the command does. Knows no requests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.errors import RequestFailed
from kohort.model.errors import ErrorCode

REFUSED_TRIES: Final = 4
"""Tries, 0.7 s in all with the default back-off, before it is believed that nobody listens."""

QUIET_S: Final = 1.0
"""How long a command waits for an answer without a word."""


@contextmanager
def asking(bootstrap: str, settings: ClientSettings | None = None) -> Iterator[Admin]:
    """An ``Admin`` for one command.

    Raises:
        ConfigError: a setting is wrong.
        RequestFailed: what the command asked for was refused; of a topic that does not exist it
            says how to find those that do.
    """
    settings = settings or parse_client_settings({"bootstrap.servers": bootstrap})
    longest_s = settings.socket_connection_setup_timeout_ms / 1_000

    def say() -> None:
        click.echo(
            f"kohort: waiting for an answer of {bootstrap}; if nobody can be reached there, this "
            f"ends after {longest_s:g} s",
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
                hint = "`kohort topics list` shows the topics there are"
                raise RequestFailed(error.code, error.about, hint) from error
            raise
        finally:
            timer.cancel()
