"""Random messages of any class and version, for the oracle and round-trip tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from kohort.model.errors import ErrorCode
from kohort.schema.declare import FieldSpec, layout_of
from kohort.schema.kinds import Kind

Nulls = Literal["never", "always", "sometimes"]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_LENGTHS = (0, 1, 7, 20, 126, 127, 128, 300)
_ALPHABET = "abcXYZ019-._/ ÄßéЖ中🦜"
_YEAR_2100 = 4_102_444_800_000


@dataclass(slots=True)
class Sampler:
    """Makes values that differ from their defaults, from a seed.

    ``narrow`` uses only values of kio's Python types: existing error codes, and times since 1970.
    """

    seed: int
    narrow: bool = False
    nulls: Nulls = "sometimes"
    tags: Nulls = "sometimes"
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def message(self, cls: type, version: int) -> Any:
        """A message with every field of ``version`` filled, and no other field."""
        layout = layout_of(cls)
        values = {f.name: self.value(f, version) for f in layout.present(version)}
        if version in layout.flexible:
            values |= self.tagged(cls, version)
        return cls(**values)

    def tagged(self, cls: type, version: int) -> dict[str, Any]:
        return {
            f.name: self.value(f, version)
            for f in layout_of(cls).tagged(version)
            if self.choose(self.tags)
        }

    def choose(self, nulls: Nulls) -> bool:
        return {"never": False, "always": True}.get(nulls, self.random.random() < 0.3)

    def value(self, f: FieldSpec, version: int) -> Any:
        if f.tag is None and version in f.nullable and self.choose(self.nulls):
            return None
        if isinstance(f.kind, type):
            made = self.struct(f.kind, version)
            # A tagged struct that equals its default is not sent, and is read back as None.
            return made if f.tag is None or made != f.kind() else self.value(f, version)
        if f.kind.name == "array":
            return self.array(f.kind.element, version)
        return self.primitive(f.kind, f.name)

    def struct(self, cls: type, version: int) -> Any:
        # Inside a message its version decides about flexibility, so tags are always tried here.
        layout = layout_of(cls)
        values = {f.name: self.value(f, version) for f in layout.present(version)}
        return cls(**values, **self.tagged(cls, version))

    def array(self, element: Any, version: int) -> list[Any]:
        count = self.random.choice((0, 1, 2, 2, 3))
        if isinstance(element, type):
            return [self.struct(element, version) for _ in range(count)]
        if self.random.random() < 0.1:
            count = 130
        return [self.primitive(element, "") for _ in range(count)]

    def primitive(self, kind: Kind[Any], name: str) -> Any:
        match kind.name:
            case "bool":
                return self.random.random() < 0.5
            case "string":
                return "".join(self.random.choices(_ALPHABET, k=self.random.choice(_LENGTHS)))
            case "bytes" | "records":
                return self.random.randbytes(self.random.choice((*_LENGTHS, 20_000)))
            case "uuid":
                return self.random.randbytes(16)
            case "float64":
                return self.random.uniform(-1e9, 1e9)
            case number:
                return self.integer(_BITS[number], name)

    def integer(self, bits: int, name: str) -> int:
        if self.narrow and "error_code" in name:
            return int(self.random.choice(_KNOWN_CODES))
        if self.narrow and bits == 64 and ("time" in name):
            return self.random.choice((-1, 0, self.random.randrange(_YEAR_2100)))
        top = 1 << (bits - 1)
        return self.random.choice((-top, top - 1, -1, 0, 1, self.random.randrange(-top, top)))


_KNOWN_CODES = [code for code in ErrorCode if code < 100]


def samplers(seed: int, count: int, *, narrow: bool) -> list[Sampler]:
    """``count`` samplers; the first ones use nulls and tags everywhere or nowhere."""
    corners: list[tuple[Nulls, Nulls]] = [
        ("never", "always"),
        ("always", "never"),
        ("always", "always"),
        ("never", "never"),
    ]
    made = []
    for n in range(count):
        nulls, tags = corners[n] if n < len(corners) else ("sometimes", "sometimes")
        made.append(Sampler(seed=seed + n, narrow=narrow, nulls=nulls, tags=tags))
    return made
