"""Applies the rules of a fault proxy to the frames of one connection.

In: the bytes of one connection, in both directions. Out: pieces to pass on, delayed, changed or
dropped. Must not know: sockets. The correlation id of an answer gives its request and so its API.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kohort.model.errors import ConfigError, ProtocolError
from kohort.wire.apis import APIS, BY_KEY, BY_NAME
from kohort.wire.codec import FrameSplitter, decode_response, encode_response

Ask = tuple[str, int]
"""A direction and an API key."""

_SIZE: Final = struct.Struct(">i")
_REQUEST_HEAD: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")
_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER = 3, 10, 60
_WITH_ADDRESSES: Final = frozenset({_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER})
_FORGOTTEN: Final = 10_000
"""Most requests that are remembered without an answer (Produce with acks=0 has none)."""


class Struck:
    """Whether a rule has been applied to its frame."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait until the rule is applied; False if that did not happen in time."""
        return self._event.wait(seconds)

    def strike(self) -> None:
        """Note that the rule was applied."""
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()


@dataclass(slots=True, eq=False, kw_only=True)
class Rule:
    """A change of one frame; a rule is removed after its frame."""

    way: str
    key: int
    left: int
    """Frames of this API up to the frame of the rule, including that frame."""
    change: Callable[[bytes], bytes | None] | None
    delay_ms: float
    reset: bool
    struck: Struck = field(default_factory=Struck)


class Piece(NamedTuple):
    """Bytes to pass on."""

    data: bytes
    delay_ms: float = 0.0
    reset: bool = False
    """Reset the connection after these bytes."""


def api_key(api: str | int) -> int:
    """The key of an API, from its name in Kafka's protocol or from a key.

    Raises:
        ConfigError: there is no API with that name.
    """
    if isinstance(api, int):
        return api
    found = BY_NAME.get(api)
    if found is None:
        names = ", ".join(each.name for each in APIS)
        raise ConfigError(f"no API is called {api!r}; expected a key or one of {names}")
    return found.key


class FrameTap:
    """Both directions of one connection.

    Args:
        rules: the rules of the proxy, shared by its connections; an applied rule is removed.
        passed: the number of frames of each API and direction; shared too.
        routes: addresses to replace in answers.
        frames: False to pass on all bytes unchanged.
    """

    def __init__(
        self,
        rules: list[Rule],
        passed: Counter[Ask],
        routes: dict[str, str],
        *,
        frames: bool,
    ) -> None:
        self._rules = rules
        self._passed = passed
        self._routes = routes
        self._splitters = {"up": FrameSplitter(), "down": FrameSplitter()} if frames else {}
        self._raw = {"up": bytearray(), "down": bytearray()}
        self._asked: dict[int, tuple[int, int]] = {}
        """Correlation id of a request -> its API key and version."""

    def feed(self, way: str, data: bytes) -> list[Piece]:
        """Take bytes; return the pieces to pass on.

        Raises:
            ProtocolError: the bytes are not frames.
        """
        splitter = self._splitters.get(way)
        if splitter is None:
            return [Piece(data)]
        raw = self._raw[way]
        raw += data
        frames = splitter.feed(data)
        del raw[: sum(_SIZE.size + len(frame) for frame in frames)]
        pieces = []
        for frame in frames:
            piece = self._pass(way, frame)
            if piece is not None:
                pieces.append(piece)
        return pieces

    def give_up(self, way: str) -> list[Piece]:
        """Stop looking at frames of a direction; return its kept bytes to pass on."""
        self._splitters.pop(way, None)
        return [Piece(data) for data in self.rest(way)]

    def rest(self, way: str) -> list[bytes]:
        """The bytes of an incomplete frame."""
        raw = bytes(self._raw[way])
        self._raw[way].clear()
        return [raw] if raw else []

    def _pass(self, way: str, frame: bytes) -> Piece | None:
        key: int | None
        if way == "up":
            key = self._key_of_request(frame)
        else:
            key, frame = self._key_of_answer(frame)
        whole = _SIZE.pack(len(frame)) + frame
        if key is None:
            return Piece(whole)
        self._passed[way, key] += 1
        for rule in self._rules:
            if rule.way == way and rule.key == key:
                rule.left -= 1
                if rule.left == 0:
                    return self._strike(rule, whole)
        return Piece(whole)

    def _strike(self, rule: Rule, whole: bytes) -> Piece | None:
        self._rules.remove(rule)
        changed = whole if rule.change is None else rule.change(whole)
        rule.struck.strike()
        if changed is None:
            return None
        return Piece(changed, rule.delay_ms, rule.reset)

    def _key_of_request(self, frame: bytes) -> int | None:
        if len(frame) < _REQUEST_HEAD.size:
            return None
        key, version, correlation = _REQUEST_HEAD.unpack_from(frame)
        if len(self._asked) >= _FORGOTTEN:
            del self._asked[next(iter(self._asked))]
        self._asked[correlation] = (key, version)
        return int(key)

    def _key_of_answer(self, frame: bytes) -> tuple[int | None, bytes]:
        if len(frame) < _CORRELATION.size:
            return None, frame
        asked = self._asked.pop(_CORRELATION.unpack_from(frame)[0], None)
        if asked is None:
            return None, frame
        key, version = asked
        if key in _WITH_ADDRESSES:
            frame = self._behind_proxies(key, version, frame)
        return key, frame

    def _behind_proxies(self, key: int, version: int, frame: bytes) -> bytes:
        """The answer with the addresses of proxies; unchanged if it cannot be decoded."""
        try:
            answer: Any
            correlation, answer = decode_response(BY_KEY[key].response, version, frame)
            self._reroute(key, answer)
            return encode_response(answer, version, correlation)[_SIZE.size :]
        except ProtocolError:
            return frame

    def _reroute(self, key: int, answer: Any) -> None:
        rows = [answer, *answer.coordinators] if key == _FIND_COORDINATOR else answer.brokers
        for row in rows:
            route = self._routes.get(f"{row.host}:{row.port}")
            if route is not None:
                host, _, port = route.rpartition(":")
                row.host, row.port = host, int(port)
