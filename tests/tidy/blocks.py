"""Finds the code in documents: fenced blocks, and the ``kohort`` commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.trees import ROOT

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The text between two fences."""

    page: Path
    language: str
    """Empty for the text of a terminal and for drawings."""
    text: str


def written_pages() -> list[Path]:
    """The pages for users that people write: no decisions and no page of commands."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    made_or_decided = {ROOT / "docs" / "reference" / "commands.md"}
    return sorted(p for p in pages if p.parent.name != "adr" and p not in made_or_decided)


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(page=page, language=match[1], text=match[2])
        for match in _FENCE.finditer(page.read_text(encoding="utf-8"))
    ]


def block_with(page: str, part: str) -> str:
    """The text of the one block of a page that holds ``part``."""
    (found,) = [block.text for block in blocks_of(ROOT / page) if part in block.text]
    return found


def inline_commands_of(page: Path) -> Iterator[list[str]]:
    """The words of ``kohort`` commands within sentences, except for shortened commands."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for command in re.findall(r"`kohort ([^`|…]+)`", text):
        yield shlex.split(command)


def commands_of(text: str) -> Iterator[list[str]]:
    """The words after ``kohort`` of every line of a terminal that runs it."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("kohort "):
            yield shlex.split(line, comments=True)[1:]
