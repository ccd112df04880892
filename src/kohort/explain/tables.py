"""Reads the tables of ``kafka-consumer-groups --describe``: offsets, members and states.

In: lines. Out: events that list a member, a partition or a group at one moment. Must not know:
files, other lines of logs.

The headings name the cells of a line, in the order of the columns.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from kohort.explain.events import Event, Kind, Place, Side

MAKER: Final = "kafka-consumer-groups"
_HEADS: Final = {
    Kind.LISTED_PARTITION: (
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"),
        ("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH"),  # Kafka 4 with --verbose
        ("TOPIC", "PARTITION", "CURRENT-OFFSET"),
    ),
    Kind.LISTED_MEMBER: (("GROUP", "CONSUMER-ID"),),
    Kind.LISTED_GROUP: (("GROUP", "COORDINATOR"),),
}
"""The first headings; Kafka before 2.1 printed a table of one group without its name."""
_WORDS: Final = re.compile(r"\S+")
_HEADINGS: Final = (
    ("COORDINATOR (ID)", "COORDINATOR"),
    ("CURRENT OFFSET", "CURRENT-OFFSET"),
    ("LOG END OFFSET", "LOG-END-OFFSET"),
)
"""Headings of two words, and the same as one word. Kafka 0.9 wrote the last two, and separated all
headings by commas."""


class TableReader:
    """Reads the tables in one file.

    Args:
        file: its name, for places.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.kind: Kind | None = None
        """The kind of the present table: the next line may be a row. None outside of tables."""
        self._columns: list[str] = []
        self._commas = False
        """Whether commas follow the cells."""

    def read(self, number: int, line: str) -> Event | Literal[True] | None:
        """The event of a row; True for a heading; None for a line that is no part of a table."""
        for told, heading in _HEADINGS:
            line = line.replace(told, heading)
        words = _WORDS.findall(line)
        if self._commas or line.startswith("GROUP,"):
            words = [word.removesuffix(",") for word in words]
        if len(words) >= 2 and words[0] in {"GROUP", "TOPIC"}:
            for kind, heads in _HEADS.items():
                if any(tuple(words[: len(head)]) == head for head in heads):
                    self.kind, self._columns = kind, words
                    self._commas = line.startswith("GROUP,")
                    return True
        if self.kind is None:
            return None
        if not words:
            self.kind = None
            return None
        event = self._row(self.kind, words, line, Place(self._file, number))
        if event is None:
            self.kind = None
        return event

    def _row(self, kind: Kind, words: list[str], line: str, place: Place) -> Event | None:
        cells = self._cells(kind, words)
        if cells is None:
            return None
        group = cells.get("GROUP", "")
        member = cells.get("CONSUMER-ID", cells.get("OWNER", "-"))  # OWNER before Kafka 0.10.1
        instance = cells.get("GROUP-INSTANCE-ID", "-")
        details = {
            name: cells[column]
            for name, column in (
                ("lag", "LAG"),
                ("count", "#PARTITIONS"),
                ("assignor", "ASSIGNMENT-STRATEGY"),
                ("host", "HOST"),
            )
            if cells.get(column, "-") != "-"
        }
        if kind is Kind.LISTED_PARTITION and cells["TOPIC"] != "-":
            details["partition"] = f"{cells['TOPIC']}-{cells['PARTITION']}"
        members = cells.get("#MEMBERS", "")
        return Event(
            kind=kind,
            side=Side.TOOL,
            place=place,
            text=line.strip()[:600],
            maker=MAKER,
            group=group,
            member="" if member in {"-", "none"} else member,
            instance="" if instance == "-" else instance,
            client="" if cells.get("CLIENT-ID", "-") == "-" else cells["CLIENT-ID"],
            state=cells.get("STATE", ""),
            members=int(members) if members.isdecimal() else None,
            details=details,
        )

    def _cells(self, kind: Kind, words: list[str]) -> dict[str, str] | None:
        """The cells of a row by their headings; None if the row does not fit the headings."""
        columns = list(self._columns)
        if kind is Kind.LISTED_GROUP and len(words) == len(columns) + 1:
            words = [words[0], words[1] + words[2], *words[3:]]  # host:port and (id)
        if kind is Kind.LISTED_MEMBER and len(words) == len(columns) - 1:
            columns = [name for name in columns if name != "GROUP-INSTANCE-ID"]
        if len(words) < len(columns) or (
            kind is not Kind.LISTED_MEMBER and len(words) != len(columns)
        ):
            return None
        cells = dict(zip(columns, words, strict=False))
        numbers = {Kind.LISTED_PARTITION: "PARTITION", Kind.LISTED_MEMBER: "#PARTITIONS"}
        number = cells.get(numbers.get(kind, ""), "0")
        return cells if number.isdecimal() or number == "-" else None
