r"""All known messages, compiled from the text files of this folder.

In: the files; each has the messages of a program or of a few. Out: `BROKER`, `CLIENT`, `TOOL`. Must
not know: frames, the texts of lines.

A line ``[name]`` begins the messages of a program. A row has a kind, as `Kind` names it, and a
message. In ``kafka.txt`` the versions of Kafka that write the message stand between both; ``-`` if
they are unknown. A message has its values as ``<name>``, and ``…`` at its end if it may go on. A
line end and a tab are ``\n`` and ``\t`` there. Rows with ``#`` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Final

from kohort.explain.events import Kind, Side
from kohort.explain.wordings.templates import Wording, wording

EITHER: Final = "kafka-python or aiokafka"
"""The program of a message that both write, if neither its logger nor another line tells more."""
_NAME: Final = re.compile(r"<\w+>")


def _read(name: str, side: Side) -> Iterator[Wording]:
    """The messages in a file."""
    maker, cells = "", 2 if side is Side.BROKER else 1
    for line in files("kohort.explain.wordings").joinpath(name).read_text("utf-8").split("\n"):
        if line.startswith("["):
            maker = line[1:-1]
        elif line and not line.startswith("#"):
            kind, *versions, message = line.split(None, cells)
            template = message.replace(r"\n", "\n").replace(r"\t", "\t")
            yield wording(Kind[kind], side, maker, template, *versions)


def _brief(table: Iterable[Wording]) -> Iterator[Wording]:
    """Messages of franz-go with an empty last value, or with the group as their only value.

    A member that gets no partitions writes an empty value. Some loggers drop all but the group.
    """
    known = {each.template for each in table}
    for each in table:
        filled, _, last = each.template.rpartition(": ")
        if _NAME.fullmatch(last) and last != "<group>":
            yield wording(each.kind, each.side, each.maker, f"{filled}:")
        name, found, _ = each.template.partition("; group: <group>, ")
        brief = f"{name}; group: <group>"
        if found and brief not in known:
            known.add(brief)
            yield wording(each.kind, each.side, each.maker, brief)


_FRANZ_GO: Final = tuple(_read("franz-go.txt", Side.CLIENT))

BROKER: Final = tuple(_read("kafka.txt", Side.BROKER))
CLIENT: Final = (
    *_read("librdkafka.txt", Side.CLIENT),
    *_read("python.txt", Side.CLIENT),
    *(*_FRANZ_GO, *_brief(_FRANZ_GO)),
    *_read("other.txt", Side.CLIENT),
    *_read("java.txt", Side.CLIENT),
)
TOOL: Final = tuple(_read("tool.txt", Side.TOOL))
