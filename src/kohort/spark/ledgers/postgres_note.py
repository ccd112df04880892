"""Notes the PostgreSQL database of a table's ledger: ``DIR/_kohort/postgres.json``.

In: the directory of a table, a URL. Out: the note. Must not know: connections, tables, psycopg.

All applications find the database by this note, so none can begin another ledger by mistake. The
note has no password.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.spark.ledgers.committing import cannot_write
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.tables.durable import make_folder, write_whole

NOTE: Final = Path("_kohort") / "postgres.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseNote:
    """The database of a ledger, and the schema there that holds only this ledger."""

    url: str
    schema: str


def noted_database(directory: Path) -> DatabaseNote | None:
    """The note of a table; None if its ledger is not in PostgreSQL.

    Raises:
        LedgerError: the note is damaged.
    """
    path = directory / NOTE
    try:
        return DatabaseNote(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        raise LedgerError(
            f"{path} does not name the database of the ledger: {error}; restore a copy of the file"
        ) from error


def note_database(directory: Path, note: DatabaseNote) -> DatabaseNote:
    """Write the note of the database; returns the note that counts. An earlier schema stays.

    Raises:
        ConfigError: the directory cannot be written.
    """
    path = directory / NOTE
    try:
        make_folder(path.parent)
        present = noted_database(directory)
        if present is not None:
            note = dataclasses.replace(note, schema=present.schema)
        write_whole(path, json.dumps(dataclasses.asdict(note)), first=present is None)
    except FileExistsError:
        return note_database(directory, note)
    except OSError as error:
        raise cannot_write(directory, error) from error
    return note
