"""The last lines of a process's log, for an error message.

In: a file. Out: text. Must not know: the process.
"""

from __future__ import annotations

from pathlib import Path


def last_lines(file: Path, most: int = 12) -> str:
    """The last lines of a file in UTF-8; a sentence in brackets if there is no file."""
    if not file.exists():
        return f"({file.name} was not written)"
    return "\n".join(file.read_text("utf-8", errors="replace").splitlines()[-most:])
