"""Generates the encoder of one message in one version, alone or with its frame.

In: a class with a table of fields and a version. Out: a function of straight-line code that returns
bytes. Must not know: sockets; the meaning of a header, which comes as a list of fixed fields.

Adjacent fixed-size fields, with the length of the next field, are one ``pack``. The parts between
two branches or loops are listed at once, and all parts are joined once. Numbers out of range,
forbidden None and the like raise Python's own errors, which ``codec`` turns into a ProtocolError
that names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import calcsize, pack
from typing import Any

from kohort.schema.declare import FieldSpec, Layout, holds_records, layout_of
from kohort.schema.kinds import Kind
from kohort.schema.runtime import (
    ONE_BYTE,
    SHORT_ARRAY,
    Malformed,
    text_length_bytes,
    uvarint_bytes,
    write_numbers,
    writers_of,
)
from kohort.schema.source import Source

_SIZE_FIELD = 4


def make_encoder(cls: type, version: int) -> Callable[..., bytes]:
    """Compile ``encode(m)``: the message alone."""
    return _Encoder(cls, version, "m").body()


def make_response_encoder(cls: type, version: int, *, tagged_header: bool) -> Callable[..., bytes]:
    """Compile ``encode(m, correlation_id)``: size, response header and message."""
    encoder = _Encoder(cls, version, "m, correlation_id")
    return encoder.frame([("i", "correlation_id")], tagged_header=tagged_header)


def make_request_encoder(cls: type, version: int) -> Callable[..., bytes]:
    """Compile ``encode(m, correlation_id, client)``: size, request header and message.

    ``client`` is the client id as the header writes it, an int16 length and the bytes.
    """
    layout = layout_of(cls)
    encoder = _Encoder(cls, version, "m, correlation_id, client")
    start = [("h", str(layout.api_key)), ("h", str(version)), ("i", "correlation_id")]
    return encoder.frame(start, raw="client", tagged_header=version in layout.flexible)


class _Encoder(Source):
    """The source of one encoder."""

    def __init__(self, cls: type, version: int, arguments: str) -> None:
        layout = layout_of(cls)
        super().__init__(f"{layout.name} v{version} encode", f"def encode({arguments}):")
        self.cls = cls
        self.version = version
        self.flexible = version in layout.flexible
        self.run: list[tuple[str, str]] = []
        self.parts: list[str] = []
        """Expressions for the next bytes; they are in no line yet."""
        self.listed = False
        """Whether the list ``p`` exists."""
        self.scope.update(
            Malformed=Malformed,
            ONE_BYTE=ONE_BYTE,
            text_length_bytes=text_length_bytes,
            uvarint_bytes=uvarint_bytes,
            write_numbers=write_numbers,
            total=_total,
        )

    def body(self) -> Callable[..., bytes]:
        first = self.mark()
        self.struct(self.cls, "m")
        if self.mark() == first:
            self.finish_fixed(prefix=[])
        else:
            self.add(f"return {self.joined()}")
        return self.compile("encode")

    def frame(
        self, start: list[tuple[str, str]], *, raw: str = "", tagged_header: bool
    ) -> Callable[..., bytes]:
        first = self.mark()
        self.run += start
        if raw:
            self.flush()
            self.parts.append(raw)
        if tagged_header:
            self.run.append(("B", "0"))
        self.struct(self.cls, "m")
        if self.mark() == first and not self.parts:
            self.finish_fixed(prefix=[("i", "SIZE")])
        else:
            self.finish_frame()
        return self.compile("encode")

    def finish_fixed(self, prefix: list[tuple[str, str]]) -> None:
        """All fields have a fixed length: the message is one ``pack``."""
        run, self.run = prefix + self.run, []
        if prefix:
            size = calcsize(">" + "".join(code for code, _ in run))
            self.scope["SIZE"] = size - _SIZE_FIELD
        self.add(f"return {self.packed(run)}")

    def finish_frame(self) -> None:
        packer = self.packer("i")
        if holds_records(self.cls):
            # Parts are few and may have megabytes: adding their lengths is cheaper than copying
            # them twice.
            self.flush()
            self.list_parts()
            self.add(f"p.insert(0, {packer}(total(p)))", "return b''.join(p)")
        else:
            self.add(f"b = {self.joined()}", f"return {packer}(len(b)) + b")

    def struct(self, cls: type, holder: str) -> None:
        """Write the fields of ``holder``. The run may stay open at its end."""
        layout = layout_of(cls)
        for f in layout.absent(self.version):
            if not f.ignorable:
                self.refuse(f, holder)
        for f in layout.present(self.version):
            with self.at(f.name):
                nullable = self.version in f.nullable
                self.value(f.kind, f"{holder}.{f.name}", nullable=nullable)
        if self.flexible:
            self.tags(layout, holder)

    def refuse(self, f: FieldSpec, holder: str) -> None:
        """A field that this version lacks may only have its default."""
        default = self.constant("default", f.fresh_default(), key=f)
        with self.at(f.name), self.block(f"if {holder}.{f.name} != {default}:"):
            self.add(
                f"raise Malformed(f'version {self.version} has no such field, "
                f"so {{{holder}.{f.name}!r}} cannot be sent')"
            )

    def flush(self) -> None:
        if self.run:
            self.parts.append(self.packed(self.run))
            self.run = []

    def list_parts(self) -> None:
        """Put the parts so far into ``p``; also before a branch or a loop, and at its end."""
        parts, self.parts = self.parts, []
        if not self.listed:
            self.add(f"p = [{', '.join(parts)}]")
        elif len(parts) == 1:
            self.add(f"p.append({parts[0]})")
        elif parts:
            self.add(f"p += {', '.join(parts)}")
        self.listed = True

    def joined(self) -> str:
        """An expression for all bytes since ``p`` was begun."""
        self.flush()
        if self.listed:
            self.list_parts()
            return "b''.join(p)"
        parts, self.parts = self.parts, []
        return f"b''.join(({', '.join(parts)},))" if parts else "b''"

    def packed(self, run: list[tuple[str, str]]) -> str:
        """An expression for the bytes of ``run``."""
        codes, values = _without_zeros(run)
        if all(value.lstrip("-").isdigit() for value in values):
            return repr(pack(">" + codes, *map(int, values)))
        return f"{self.packer(codes)}({', '.join(values)})"

    def compact(self, n: str, wide: str) -> None:
        """Write ``n`` as an unsigned varint, by ``wide`` if it is long, with the run before it."""
        before, self.run = self.run, []
        if before:
            short = self.packed([*before, ("B", n)])
            self.parts.append(f"{short} if {n} < 128 else {self.packed(before)} + {wide}({n})")
        else:
            self.parts.append(f"ONE_BYTE[{n}] if {n} < 128 else {wide}({n})")

    def value(self, kind: Kind[Any] | type, value: str, *, nullable: bool) -> None:
        if isinstance(kind, type):
            self.nested(kind, value, nullable=nullable)
        elif kind.code:
            if kind.code == "16s":
                self.check_uuid(value)
            self.run.append((kind.code, value))
        elif kind.element is not None:
            self.array(kind.element, value, nullable=nullable)
        else:
            self.slice(kind, value, nullable=nullable)

    def check_uuid(self, value: str) -> None:
        # ``pack`` would cut or fill up silently.
        self.add(
            f"if len({value}) != 16:",
            f"    raise Malformed(f'a uuid has 16 bytes, not {{len({value})}}')",
        )

    def nested(self, cls: type, value: str, *, nullable: bool) -> None:
        inner = self.fresh("m")
        self.add(f"{inner} = {value}")
        if not nullable:
            self.struct(cls, inner)
            return
        self.flush()
        self.list_parts()
        self.add(f"if {inner} is None:", "    p.append(b'\\xff')")
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.struct(cls, inner)
            self.flush()
            self.list_parts()

    def slice(self, kind: Kind[Any], value: str, *, nullable: bool) -> None:
        """A string, bytes or records, after their length."""
        n, b = self.fresh("n"), self.fresh("b")
        encode = ".encode()" if kind.name == "string" else ""
        one = " + 1" if self.flexible else ""
        if nullable:
            self.add(
                f"{b} = {value}",
                f"if {b} is None:",
                f"    {n} = {0 if self.flexible else -1}",
                f"    {b} = b''",
            )
            with self.block("else:"):
                if encode:
                    self.add(f"{b} = {b}{encode}")
                self.add(f"{n} = len({b}){one}")
        else:
            self.add(f"{b} = {value}{encode}", f"{n} = len({b}){one}")
        self.length(n, "h" if kind.name == "string" else "i")
        self.parts.append(b)

    def length(self, n: str, code: str) -> None:
        if self.flexible:
            self.compact(n, "text_length_bytes" if code == "h" else "uvarint_bytes")
        else:
            self.run.append((code, n))
            self.flush()

    def array(self, element: Kind[Any] | type, value: str, *, nullable: bool) -> None:
        n, items = self.fresh("n"), self.fresh("v")
        one = " + 1" if self.flexible else ""
        self.add(f"{items} = {value}")
        if nullable:
            self.add(
                f"if {items} is None:",
                f"    {n} = {0 if self.flexible else -1}",
                f"    {items} = ()",
                "else:",
                f"    {n} = len({items}){one}",
            )
        else:
            self.add(f"{n} = len({items}){one}")
        if isinstance(element, Kind) and len(element.code) == 1:
            self.numbers(element.code, n, items)
        else:
            self.length(n, "i")
            self.elements(element, items)

    def numbers(self, code: str, n: str, items: str) -> None:
        """Count and numbers, and the run before them, in one ``pack`` when they are few."""
        codes, values = _without_zeros([*self.run, ("B" if self.flexible else "i", n)])
        few = self.constant("writers", writers_of(codes, code), key=(codes, code))
        self.list_parts()
        self.add(
            f"if len({items}) < {SHORT_ARRAY}:",
            f"    p.append({few}[len({items})]({', '.join(values)}, *{items}))",
        )
        with self.block("else:"):
            self.length(n, "i")
            self.parts.append(f"write_numbers({code!r}, {items})")
            self.list_parts()
        self.run = []

    def elements(self, element: Kind[Any] | type, items: str) -> None:
        item = self.fresh("m")
        self.list_parts()
        start = self.mark()
        with self.block(f"for {item} in {items}:"):
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, nullable=False)
            self.flush()
            self.list_parts()
        loop, *body = self.since(start)
        if len(body) == 1 and body[0].startswith("p.append("):
            # One part an element: a comprehension appends them faster than calls do.
            self.cut(start)
            self.add(f"p += [{body[0][len('p.append(') : -1]} {loop[:-1]}]")

    # Tagged fields.

    def tags(self, layout: Layout, holder: str) -> None:
        known = layout.tagged(self.version)
        if not known:
            self.run.append(("B", "0"))
            return
        sent = {f: self.fresh("s") for f in known}
        for f, flag in sent.items():
            value = f"{holder}.{f.name}"
            if isinstance(f.kind, type) and f.default is None:
                # A struct with nothing but defaults is not written either.
                default = self.constant("default", f.kind(), key=f)
                self.add(f"{flag} = {value} is not None and {value} != {default}")
            else:
                default = self.constant("default", f.fresh_default(), key=f)
                self.add(f"{flag} = {value} != {default}")
        self.run.append(("B", " + ".join(sent.values())))
        self.flush()
        self.list_parts()
        for f, flag in sent.items():
            with self.at(f.name), self.block(f"if {flag}:"):
                self.tagged_value(f, f"{holder}.{f.name}")

    def tagged_value(self, f: FieldSpec, value: str) -> None:
        """Tag, size, content; the content is built separately, because its size comes first."""
        outer, content = self.fresh("q"), self.fresh("b")
        self.add(f"{outer} = p")
        self.listed = False
        self.value(f.kind, value, nullable=self.version in f.nullable)
        self.add(
            f"{content} = {self.joined()}",
            f"p = {outer}",
            f"p += uvarint_bytes({f.tag}), uvarint_bytes(len({content})), {content}",
        )
        self.listed = True


def _without_zeros(run: list[tuple[str, str]]) -> tuple[str, list[str]]:
    """Format codes and values of ``run``; bytes that are always zero become padding."""
    codes = ["x" if item == ("B", "0") else item[0] for item in run]
    return "".join(codes), [value for code, value in run if (code, value) != ("B", "0")]


def _total(parts: Iterable[bytes]) -> int:
    return sum(map(len, parts))
