"""``producer-ids.json``: producer ids that were given, so that no id is given twice.

In: nothing. Out: new ids. Must not know: producers. A block of ids is reserved at a time; a crash
loses the rest of the block.
"""

from __future__ import annotations

import json
from typing import Final

from kohort.storage.errors import disk
from kohort.storage.files import Files, read_json, replace_durably

_NAME: Final = "producer-ids.json"
_BLOCK: Final = 1000


class ProducerIds:
    """The producer ids of one data directory.

    Raises:
        CorruptLog: the file is damaged.
    """

    __slots__ = ("_end", "_files", "_next", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        first = read_json(files, f"{path}/{_NAME}", lambda stored: int(stored["next"]))
        self._next = self._end = first or 0

    def allocate(self) -> int:
        """An id that was never given before, in this life of the directory or an earlier one.

        Raises:
            StorageError: the disk.
        """
        if self._next == self._end:
            end = self._next + _BLOCK
            with disk("cannot reserve producer ids"):
                text = json.dumps({"version": 1, "next": end})
                replace_durably(self._files, self._path, _NAME, text)
            self._end = end
        self._next += 1
        return self._next - 1
