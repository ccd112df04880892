"""Notes the host that writes a table, and keeps other hosts out.

In: the folder of the ledger and the identity of this host. Out: ``host.json`` in the folder, or an
error. Must not know: SQLite, Spark.

SQLite's locks and its shared memory do not reach another host, so two hosts would damage a ledger
on a network file system. The note is a file beside the ledger: a second host must not even open the
ledger (ADR 0060).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Final

from kohort.host.identity import VARIABLE, HostIdentity
from kohort.model.errors import ConfigError
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.tables.durable import write_whole

NAME: Final = "host.json"


class OneHost:
    """The note in one folder, for a process on the host ``here``."""

    def __init__(self, folder: Path, here: HostIdentity) -> None:
        self._path = folder / NAME
        self._here = here
        self._seen = ""
        """The text of a note that names this host."""

    def claim(self) -> None:
        """Note this host if none is noted.

        Raises:
            ConfigError: another host is noted.
            OSError: the note cannot be written.
        """
        noted = self.noted()
        if noted is None:
            try:
                self._write(first=True)
            except FileExistsError:
                noted = self.noted()
        if noted is None:
            return
        if not noted.is_same(self._here):
            table = self._path.parent.parent
            raise ConfigError(
                f"host {noted.name} writes the table in {table}, this is host {self._here.name}: "
                "locks of SQLite do not reach another host, so two would damage the table; run all "
                f"its applications on {noted.name}, or end them and run `kohort table adopt "
                f"{table}` here; containers of one machine get one name in {VARIABLE}"
            )
        if noted.boot != self._here.boot:
            self._write()

    def check(self) -> None:
        """Raise LedgerError if another host has adopted the table."""
        text = self._text()
        if text in ("", self._seen):
            return
        noted = self._parsed(text)
        if not noted.is_same(self._here):
            raise LedgerError(
                f"host {noted.name} has adopted the table in {self._path.parent.parent} from host "
                f"{self._here.name}: nothing of this batch was committed; start the application on "
                f"{noted.name}"
            )
        self._seen = text

    def adopt(self) -> HostIdentity | None:
        """Note this host in place of the noted one, which is returned; None if none is readable."""
        try:
            noted = self.noted()
        except LedgerError:
            noted = None
        self._write()
        return noted

    def noted(self) -> HostIdentity | None:
        """The host that writes the table.

        Raises:
            LedgerError: the note is damaged.
        """
        text = self._text()
        return self._parsed(text) if text else None

    def _text(self) -> str:
        """The text of the note; empty if there is none."""
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _parsed(self, text: str) -> HostIdentity:
        try:
            return HostIdentity(**json.loads(text))
        except (ValueError, TypeError) as error:
            table = self._path.parent.parent
            raise LedgerError(
                f"{self._path} does not name the host that writes the table: {error}; run "
                f"`kohort table adopt {table}` on the host that shall write it"
            ) from error

    def _write(self, *, first: bool = False) -> None:
        text = json.dumps(dataclasses.asdict(self._here))
        write_whole(self._path, text, first=first)
