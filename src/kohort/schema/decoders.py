"""Generates the decoder of one message in one version.

In: a class with a table of fields and a version. Out: a function ``decode(d, o, budget)`` of
straight-line code that returns the message and the offset after it. Must not know: sockets, which
messages exist.

The decoder is generated because Python pays for every call and every branch. Adjacent fixed-size
fields, with the length of the next field, are one ``unpack_from``, and nothing is tested twice. A
slice beyond the end is silently short in Python, so the end is compared once, at the end. Until
then no step reads outside the data, and an array's count is limited before its first element is
made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import calcsize
from typing import Any, TypeGuard

from kohort.schema.declare import FieldSpec, Layout, holds_records, layout_of
from kohort.schema.kinds import Kind
from kohort.schema.runtime import (
    SHORT_ARRAY,
    Malformed,
    read_numbers,
    readers_of,
    skip_tags,
    uvarint,
    wide_count,
    wide_length,
    wide_text_length,
)
from kohort.schema.source import Source


def make_decoder(cls: type, version: int) -> Callable[..., Any]:
    """Compile ``decode(d, o, budget)``, which returns the message and the offset after it.

    ``d`` must be ``bytes``, or for a response with record batches any view of bytes: then batches
    are views, too. ``budget`` is the limit for array elements.
    """
    return _Decoder(cls, version, "d, o, budget").message().compile("decode")


def make_request_decoder(cls: type, version: int, header: type) -> Callable[..., Any]:
    """Compile ``decode(d, correlation_id, n, budget)`` of a whole request frame.

    ``n`` is the length of the client id, which starts at byte 10. Returns a new ``header``, with
    the slots api_key, api_version, correlation_id and client_id, and the message.
    """
    return _Decoder(cls, version, "d, correlation_id, n, budget").request(header).compile("decode")


_CLIENT_ID_AT = 10


class _Decoder(Source):
    """The source of one decoder."""

    def __init__(self, cls: type, version: int, arguments: str) -> None:
        layout = layout_of(cls)
        super().__init__(f"{layout.name} v{version} decode", f"def decode({arguments}):")
        self.version = version
        self.flexible = version in layout.flexible
        self.run: list[tuple[str, str]] = []
        self.cls = cls
        self.layout = layout
        self.of_view = not layout.is_request and holds_records(cls)
        self.scope.update(
            new=object.__new__,
            Malformed=Malformed,
            read_numbers=read_numbers,
            skip_tags=skip_tags,
            uvarint=uvarint,
            wide_count=wide_count,
            wide_length=wide_length,
            wide_text_length=wide_text_length,
        )

    def message(self) -> _Decoder:
        self.body()
        self.add("return m, o")
        return self

    def request(self, header: type) -> _Decoder:
        with self.at("client_id"):
            self.add(
                "if n < 0:",
                "    c = None",
                f"    o = {_CLIENT_ID_AT}",
                "else:",
                f"    o = {_CLIENT_ID_AT} + n",
                f"    c = d[{_CLIENT_ID_AT}:o].decode()",
            )
        if self.flexible:
            self.add("if d[o]:", "    o = skip_tags(d, o)", "else:", "    o += 1")
        self.body(whole=True)
        self.add(
            f"h = new({self.constant('header', header, header)})",
            f"h.api_key = {self.layout.api_key}",
            f"h.api_version = {self.version}",
            "h.correlation_id = correlation_id",
            "h.client_id = c",
            "return h, m",
        )
        return self

    def body(self, *, whole: bool = False) -> None:
        self.struct(self.cls, "m", whole=whole)
        self.flush()
        if not self.flexible:
            # A flexible message ends with tags, and reading the tags is a check in itself.
            self.add(
                "if o > len(d):", "    raise Malformed('the last field reaches beyond the end')"
            )

    def struct(self, cls: type, target: str, *, whole: bool = False) -> None:
        """Fill ``target`` with a new object of ``cls``. The run may stay open at its end.

        ``whole``: the end of the data must follow.
        """
        self.flush()
        layout = layout_of(cls)
        self.add(f"{target} = new({self.constant('cls', cls, cls)})")
        for f in layout.absent(self.version):
            self.add(f"{target}.{f.name} = {self.default(f)}")
        fields = layout.present(self.version)
        tail = self.null_tail(layout) if whole and self.flexible else []
        for f in fields[: len(fields) - len(tail)]:
            self.field(f, target)
        if tail:
            self.flush()
            with self.block(f"if d[o:] == {bytes(len(tail) + 1)!r}:"):
                for f in tail:
                    self.add(f"{target}.{f.name} = None")
                self.add(f"o += {len(tail) + 1}")
            with self.block("else:"):
                self.rest(layout, tail, target)
        else:
            self.rest(layout, [], target)

    def rest(self, layout: Layout, fields: list[FieldSpec], target: str) -> None:
        for f in fields:
            self.field(f, target)
        if self.flexible:
            self.tags(layout, target)
        if fields:
            self.flush()

    def field(self, f: FieldSpec, target: str) -> None:
        with self.at(f.name):
            self.value(f.kind, f"{target}.{f.name}", nullable=self.version in f.nullable)

    def null_tail(self, layout: Layout) -> list[FieldSpec]:
        """The nullable fields at the end: usually all are null, which one comparison shows."""
        tail: list[FieldSpec] = []
        if layout.tagged(self.version):
            return tail
        for f in reversed(layout.present(self.version)):
            if self.version not in f.nullable or isinstance(f.kind, type):
                break
            tail.insert(0, f)
        return tail

    def default(self, f: FieldSpec) -> str:
        if isinstance(f.kind, type):
            return f"{self.constant('cls', f.kind, f.kind)}()" if f.default_is_fresh else "None"
        if f.default_is_fresh:
            return "[]"
        if f.default is None or isinstance(f.default, (bool, int, str, bytes)):
            return repr(f.default)
        return self.constant("default", f.default, f)

    @contextmanager
    def unless(self, null: str, target: str, *, nullable: bool) -> Iterator[None]:
        """Add lines that read a value, for the case that the condition ``null`` does not hold."""
        if not nullable:
            yield
            return
        self.add(f"if {null}:", f"    {target} = None")
        with self.block("else:"):
            yield

    # Fixed-size fields are collected in a run and read together.

    def fixed(self, code: str, target: str) -> None:
        self.run.append((code, target))

    def flush(self, *, stay: int = 0) -> None:
        """Read the run.

        Afterwards the cursor is after the run, or ``stay`` bytes before its end.
        """
        if not self.run:
            return
        run, self.run = self.run, []
        codes = "".join(code for code, _ in run)
        targets = ", ".join(target for _, target in run)
        if codes == "B":
            self.add(f"{targets} = d[o]")
        else:
            comma = "," if len(run) == 1 else ""
            self.add(f"{targets}{comma} = {self.unpacker(codes)}(d, o)")
        step = calcsize(">" + codes) - stay
        if step:
            self.add(f"o += {step}")

    def value(self, kind: Kind[Any] | type, target: str, *, nullable: bool) -> None:
        if isinstance(kind, type):
            self.nested(kind, target, nullable=nullable)
        elif kind.code:
            self.fixed(kind.code, target)
        elif kind.element is not None:
            self.array(kind.element, target, nullable=nullable)
        elif self.flexible:
            self.compact_slice(kind, target, nullable=nullable)
        else:
            self.plain_slice(kind, target, nullable=nullable)

    def nested(self, cls: type, target: str, *, nullable: bool) -> None:
        inner, marker = self.fresh("m"), ""
        if nullable:
            marker = self.fresh("n")
            self.fixed("b", marker)
            self.flush()
        with self.unless(f"{marker} < 0", target, nullable=nullable):
            self.struct(cls, inner)
            self.flush()
            self.add(f"{target} = {inner}")

    # Strings, bytes and records.

    def compact_slice(self, kind: Kind[Any], target: str, *, nullable: bool) -> None:
        n = self.fresh("n")
        self.fixed("B", n)
        self.flush(stay=1)
        wide = "wide_text_length" if kind.name == "string" else "wide_length"
        taken = self.taken("d[o + 1 : e]", kind)
        if not nullable:
            self.add(
                f"if {n} > 127 or {n} == 0:",
                f"    {n}, o = {wide}(d, o)",
                f"e = o + {n}",
                f"{target} = {taken}",
                "o = e",
            )
            return
        self.add(
            f"if {n} == 0:",
            f"    {target} = None",
            "    o += 1",
            "else:",
            f"    if {n} > 127:",
            f"        {n}, o = {wide}(d, o)",
            f"    e = o + {n}",
            f"    {target} = {taken}",
            "    o = e",
        )

    def taken(self, piece: str, kind: Kind[Any]) -> str:
        """An expression for the value in a slice of the data."""
        if kind.name != "string":
            return piece
        return f"str({piece}, 'utf-8')" if self.of_view else f"{piece}.decode()"

    def plain_slice(self, kind: Kind[Any], target: str, *, nullable: bool) -> None:
        n = self.fresh("n")
        self.fixed("h" if kind.name == "string" else "i", n)
        self.flush()
        with self.unless(f"{n} == -1", target, nullable=nullable):
            self.add(
                f"if {n} < 0:",
                f"    raise Malformed(f'length {{{n}}}')",
                f"e = o + {n}",
                f"{target} = {self.taken('d[o:e]', kind)}",
                "o = e",
            )

    # Arrays.

    def array(self, element: Kind[Any] | type, target: str, *, nullable: bool) -> None:
        n = self.fresh("n")
        self.fixed("B" if self.flexible else "i", n)
        self.flush()
        if _is_number(element) and self.flexible:
            self.short_numbers(element, target, n, nullable=nullable)
        else:
            self.counted(element, target, n, nullable=nullable)

    def counted(self, element: Kind[Any] | type, target: str, n: str, *, nullable: bool) -> None:
        """Elements; ``n`` is their count in the form of the wire."""
        if self.flexible:
            self.add(f"if {n} > 127:", f"    {n}, o = wide_count(d, o)", f"{n} -= 1")
        with self.unless(f"{n} == -1", target, nullable=nullable):
            self.elements(element, target, n)

    def short_numbers(self, element: Any, target: str, n: str, *, nullable: bool) -> None:
        """A compact array of numbers: up to about thirty need no other check than reading them."""
        readers = self.constant("readers", _READERS[element.code], key=element.code)
        self.add(
            f"if 0 < {n} <= {SHORT_ARRAY}:",
            f"    budget -= {n}",
            f"    {target} = list({readers}[{n} - 1](d, o))",
            f"    o += {element.size} * {n} - {element.size}",
        )
        with self.block("else:"):
            self.counted(element, target, n, nullable=nullable)

    def elements(self, element: Kind[Any] | type, target: str, n: str) -> None:
        """Read ``n`` elements; each takes at least one byte, so the rest of the data limits n."""
        self.add(
            f"budget -= {n}",
            f"if not 0 <= {n} <= len(d) - o or budget < 0:",
            f"    raise Malformed(f'{{{n}}} elements')",
        )
        if _is_number(element):
            self.add(
                f"{target} = list(read_numbers({element.code!r}, {n}, d, o))",
                f"o += {n} * {element.size}",
            )
            return
        items, append = self.fresh("v"), self.fresh("a")
        self.add(f"{items} = []", f"{append} = {items}.append")
        item = self.fresh("m")
        with self.block(f"for _ in range({n}):"):
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, nullable=False)
            self.flush()
            self.add(f"{append}({item})")
        self.add(f"{target} = {items}")

    # Tagged fields.

    def tags(self, layout: Layout, target: str) -> None:
        known = layout.tagged(self.version)
        for f in known:
            self.add(f"{target}.{f.name} = {self.default(f)}")
        if not known and not self.run:
            self.add("if d[o]:", "    o = skip_tags(d, o)", "else:", "    o += 1")
            return
        count = self.fresh("t")
        self.fixed("B", count)
        self.flush()
        with self.block(f"if {count}:"):
            if known:
                self.known_tags(known, target, count)
            else:
                self.add("o = skip_tags(d, o - 1)")

    def known_tags(self, known: list[FieldSpec], target: str, count: str) -> None:
        tag, end = self.fresh("t"), self.fresh("e")
        self.add(f"{count}, o = wide_count(d, o)")
        with self.block(f"for _ in range({count}):"):
            self.add(
                f"{tag}, o = uvarint(d, o)",
                f"{end}, o = uvarint(d, o)",
                f"{end} += o",
                f"if {end} > len(d):",
                "    raise Malformed('a tagged field reaches beyond the end')",
            )
            word = "if"
            for f in known:
                with self.at(f.name), self.block(f"{word} {tag} == {f.tag}:"):
                    self.value(f.kind, f"{target}.{f.name}", nullable=self.version in f.nullable)
                    self.flush()
                    self.add(
                        f"if o != {end}:", "    raise Malformed('a tagged field has another size')"
                    )
                word = "elif"
            self.add("else:", f"    o = {end}")


def _is_number(element: Kind[Any] | type) -> TypeGuard[Kind[Any]]:
    return isinstance(element, Kind) and len(element.code) == 1


_READERS = {code: readers_of(code) for code in "?bhiqd"}
