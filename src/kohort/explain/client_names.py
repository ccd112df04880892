"""Names of clients in the lines of several logs.

In: events of clients. Out: one name for each client. Must not know: kinds of events.

Processes in pods of their own have the same client id by default, as ``consumer-orders-1`` of Java
and ``rdkafka#consumer-1``. So the same name in another log is another client, unless the logs are
parts of one that was rotated. A program that writes no client id is named by its log: the log of a
pod mostly has the name of the pod.
"""

from __future__ import annotations

import re
from typing import Final

from kohort.explain.events import Event
from kohort.explain.wordings.messages import EITHER

_ROTATED: Final = re.compile(r"(?:\.\d{1,3}|[._-]\d{4}-?\d\d-?\d\d(?:[T_.-]?\d+)*)*(?:\.gz)?$")
"""The end of the name of a log that was rotated: numbers, dates, ``.gz``."""
_ENDING: Final = re.compile(r"(?:\.(?:log|txt|json|jsonl|out|err))+$|^-$")
"""The end of a log's name that says nothing about its program; the whole name of standard input."""
_MOST: Final = 50_000
_FAMILY: Final = dict.fromkeys(("aiokafka", "kafka-python", EITHER), EITHER)
"""aiokafka and kafka-python write some equal lines: both have one name here."""


class ClientNames:
    """Names the clients of one group."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        """By the name in the line, and by file."""
        self._logs: dict[str, dict[str, str]] = {}
        """By the name in the line, and by log."""
        self._programs: dict[str, str] = {}
        """The program that writes no client ids into a log, by log: the first one."""

    def of(self, event: Event) -> str:
        """The client's name; with its log if another log has a client of this name."""
        if event.source:
            return event.source
        key = name, file = event.client or _FAMILY.get(event.maker, event.maker), event.place.file
        found = self._names.get(key)
        if found is None:
            log = _ROTATED.sub("", file)
            if not event.client and self._programs.setdefault(log, name) == name:
                name = _ENDING.sub("", log.rpartition("/")[2]) or name
            logs = self._logs.get(name, {})
            found = logs.get(log) or (f"{name} in {log}" if logs else name)
            if len(self._names) < _MOST:
                self._names[key] = found
                self._logs.setdefault(name, {})[log] = found
        return found
