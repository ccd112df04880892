"""``start-offsets.json``: the start offsets of logs with deleted records.

In: offsets by a log's name. Out: the same after a restart. Must not know: logs. A log's segments
show its start, except for records that were deleted in the middle of a segment (KIP-107); this file
holds those starts. It is replaced as a whole, and durable before a client learns of the deletion.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kohort.storage.files import Files, read_json, replace_durably

_NAME: Final = "start-offsets.json"


def _read(stored: Any) -> dict[str, int]:
    return {str(name): int(offset) for name, offset in stored["start_offsets"].items()}


class StartOffsets:
    """The start offsets of one data directory.

    Raises:
        CorruptLog: the file is there and cannot be read.
    """

    __slots__ = ("_files", "_offsets", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._offsets = read_json(files, f"{path}/{_NAME}", _read) or {}

    def of(self, name: str) -> int:
        """The offset below which a log's records were deleted; 0 if none were."""
        return self._offsets.get(name, 0)

    def set(self, name: str, offset: int) -> None:
        """Start a log at ``offset``. Durable on return.

        Raises:
            OSError: the disk; nothing has changed.
        """
        self._write(self._offsets | {name: offset})

    def forget(self, names: list[str]) -> None:
        """Forget the starts of these names, because new logs get them. Durable on return.

        Raises:
            OSError: the disk; nothing has changed.
        """
        gone = set(names)
        others = {name: at for name, at in self._offsets.items() if name not in gone}
        if len(others) < len(self._offsets):
            self._write(others)

    def _write(self, offsets: dict[str, int]) -> None:
        text = json.dumps({"version": 1, "start_offsets": offsets}, indent=1)
        replace_durably(self._files, self._path, _NAME, text)
        self._offsets = offsets
