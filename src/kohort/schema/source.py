"""Source text under construction: lines, the names they use, and the field of each line.

In: lines from the two generators. Out: a compiled function, with a map from its line numbers to
field paths, so that an error in straight-line code can name its field. Must not know: layouts,
kinds, versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

_INDENT = "    "
_FILE_MARK = "<kohort codec "


class Source:
    """A function being written line by line."""

    def __init__(self, title: str, signature: str) -> None:
        self.title = title
        self.scope: dict[str, Any] = {}
        self._names: dict[tuple[str, Hashable], str] = {}
        self._count = 0
        self._depth = 0
        self._lines: list[str] = []
        self._paths: list[str] = []
        self.path = ""
        self.add(signature)
        self._depth = 1

    def add(self, *lines: str) -> None:
        """Append lines at the current depth, on behalf of the current field path."""
        for line in lines:
            self._lines.append(_INDENT * self._depth + line)
            self._paths.append(self.path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append ``head`` and indent the lines that are added inside."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Add lines on behalf of the field ``name`` below the current path."""
        outer = self.path
        self.path = f"{outer}.{name}" if outer else name
        yield
        self.path = outer

    def fresh(self, prefix: str) -> str:
        """A local name that nothing else uses."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: object, key: Hashable) -> str:
        """A global name for ``value``; the same name for the same prefix and ``key``."""
        name = self._names.get((prefix, key))
        if name is None:
            name = self._names[prefix, key] = f"{prefix.upper()}{len(self._names)}"
            self.scope[name] = value
        return name

    def packer(self, codes: str) -> str:
        """A global name for ``pack`` of the big-endian ``struct.Struct`` of ``codes``."""
        return self.constant("pack", struct.Struct(">" + codes).pack, key=codes)

    def unpacker(self, codes: str) -> str:
        """A global name for ``unpack_from`` of the big-endian ``struct.Struct`` of ``codes``."""
        return self.constant("unpack", struct.Struct(">" + codes).unpack_from, key=codes)

    def mark(self) -> int:
        """A position for ``since`` and ``cut``."""
        return len(self._lines)

    def since(self, mark: int) -> list[str]:
        """The lines after ``mark``, without their indentation."""
        return [line.strip() for line in self._lines[mark:]]

    def cut(self, mark: int) -> None:
        """Remove the lines after ``mark``."""
        del self._lines[mark:], self._paths[mark:]

    def compile(self, name: str) -> Callable[..., Any]:
        """Run the source and return the function called ``name``; it carries its paths."""
        code = compile("\n".join(self._lines) + "\n", f"{_FILE_MARK}{self.title}>", "exec")
        exec(code, self.scope)
        made: Callable[..., Any] = self.scope[name]
        made.__kohort_paths__ = tuple(self._paths)  # type: ignore[attr-defined]
        return made


def place_of(function: Callable[..., Any], error: BaseException) -> tuple[str, int | None]:
    """Field path and byte offset at which ``function``, made by ``Source``, raised ``error``.

    The offset is that of the decoder's cursor, None for an encoder.
    """
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is function.__code__:
            paths = function.__kohort_paths__  # type: ignore[attr-defined]
            return paths[trace.tb_lineno - 1], frame.f_locals.get("o")
        trace = trace.tb_next
    return "", None
