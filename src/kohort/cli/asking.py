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
from kohort.client.descriptions import TopicDescription
from kohort.client.errors import ClientError, RequestFailed
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
    settings = settings or parse_client_settings(configured(bootstrap))
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


def existing_topic(admin: Admin, name: str) -> TopicDescription:
    """A topic that a command reads or writes.

    Raises:
        ClientError: the topic does not exist; the message names the commands that help.
    """
    try:
        return admin.topics([name])[name]
    except RequestFailed as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise ClientError(
            f"topic {name} does not exist; `kohort topics list` shows all topics, "
            f"`kohort topics create {name}` makes it"
        ) from None
