"""Conversations as text: clients, their requests with all fields, and the answers.

A file is replayed line by line, and the answers are compared with the file:

    # a comment
    a > JoinGroup v9 member_id='' protocols=[(name='range' metadata=b'of a')]    a sends this
    a < error_code=MEMBER_ID_REQUIRED member_id='<a>'                            it is answered this
    a waits                                                  nothing has answered a's last request
    a >> Heartbeat v4 generation_id=2 member_id='<a>'       a asks until the answer is the next line

A line that is indented goes on with the one before. Member ids are named by client or instance id
and by the order in which they are seen: ``<a>``, ``<a-2>``. Fields that are not named have their
defaults; ``group_id`` is the conversation's own. Members are shown in the order of their names.

``python -m tests.conformance.conversation HOST:PORT FILE`` prints what a broker makes of a file, so
that a new one may be written with ``?`` for every answer and read before it is kept.
"""

from __future__ import annotations

import ast
import asyncio
import re
import secrets
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.profile import Profile
from tests.conformance.registry import profile_of
from tests.conformance.shown import shown
from tests.conformance.talk import PATIENCE_S, Talk

from kohort.schema.declare import layout_of
from kohort.wire.apis import BY_NAME
from kohort.wire.messages.k13_leave_group import LeaveGroupResponse

FOLDER = Path(__file__).parent / "conversations"
CONVERSATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))

Replay = list[str] | BaseException
"""The result of a conversation with a broker, or the error that ended it."""

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_MEMBER_ID = re.compile(rf"'([^']*)-{_UUID}'|'([^']*)-([A-Za-z0-9_-]{{22}})'")
_HOST = re.compile(r"client_host='/[^']*'")
_ANSWERED = re.compile(r"(\w+) < (.*)")
_SENT = re.compile(r"(\w+) (>>?) (\w+) v(\d+) ?(.*)")
_TOKEN = re.compile(r"\s*([\[\](),=]|b?'(?:[^'\\]|\\.)*'|[\w<>.-]+)")
_POLL_S = 0.1


class Conversation:
    """One replay of a file at one broker; ``told`` is what came of it, line by line."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.told: list[str] = []
        self._names: dict[str, str] = {}
        """Placeholders by member id."""
        self._prefixes: list[str] = []
        self._open: dict[str, list[asyncio.Task[Any]]] = {}

    async def replay(self, lines: list[str]) -> list[str]:
        for number, line in enumerate(lines):
            if sent := _SENT.fullmatch(line):
                wanted = lines[number + 1] if sent[2] == ">>" else None
                self.told.append(line)
                await self._sends(sent, wanted)
            elif answered := _ANSWERED.fullmatch(line):
                who = answered[1]
                answer = await self.talk.within(self._open[who].pop(0))
                self.told.append(f"{who} < {self._named(answer)}")
            elif line.endswith(" waits"):
                await self.talk.waits(self._open[line.removesuffix(" waits")][-1])
                self.told.append(line)
            else:
                assert not line or line.startswith("#"), f"line {number + 1} says nothing: {line}"
                self.told.append(line)
        return self.told

    async def _sends(self, sent: re.Match[str], wanted: str | None) -> None:
        who, _, api, version, rest = sent.groups()
        fields = _Fields(rest, {name: member_id for member_id, name in self._names.items()}).all()
        cls = BY_NAME[api].request
        if any(spec.name == "group_id" for spec in layout_of(cls).fields):
            fields = {"group_id": self.talk.group, **fields}
        request = _built(cls, fields, self.talk.group)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            task = self.talk.starts(self.talk.ask(api, request, int(version), who))
            if wanted is None:
                self._open.setdefault(who, []).append(task)
                # So that the broker sees requests of several connections in the file's order.
                await asyncio.wait([task], timeout=_POLL_S)
                return
            answer = await self.talk.within(task)
            if f"{who} < {self._named(answer)}" == wanted or time.monotonic() > deadline:
                self._open.setdefault(who, []).append(task)
                return
            await asyncio.sleep(_POLL_S)

    def _named(self, answer: Any) -> str:
        for listing in (answer, *getattr(answer, "groups", ())):
            members = getattr(listing, "members", [])
            if not isinstance(answer, LeaveGroupResponse):
                members.sort(key=lambda m: self._names.get(m.member_id, m.member_id))
        text = _HOST.sub("client_host='<host>'", shown(answer).replace(self.talk.group, "<group>"))
        return _MEMBER_ID.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        member_id, prefix = found[0][1:-1], found[1] or found[2]
        if member_id not in self._names:
            serial = 1 + sum(known == prefix for known in self._prefixes)
            self._prefixes.append(prefix)
            self._names[member_id] = f"<{prefix}>" if serial == 1 else f"<{prefix}-{serial}>"
        return f"'{self._names[member_id]}'"


def _built(cls: type, fields: dict[str, Any], group: str) -> Any:
    """A message, or a struct inside one, of fields by name."""
    layout = layout_of(cls)
    kinds = {spec.name: getattr(spec.kind, "element", spec.kind) for spec in layout.fields}
    values = {}
    for name, value in fields.items():
        assert name in kinds, f"{cls.__name__} has no {name}, only {sorted(kinds)}"
        values[name] = _value(kinds[name], value, group)
    return cls(**values)


def _value(kind: Any, value: Any, group: str) -> Any:
    if isinstance(value, list):
        return [_value(kind, each, group) for each in value]
    if isinstance(value, dict):
        return _built(kind, value, group)
    return group if value == "<group>" else value


class _Fields:
    """Reads ``name=value`` in the form in which ``shown`` writes it."""

    def __init__(self, text: str, ids: dict[str, str]) -> None:
        self._tokens = _TOKEN.findall(text)
        self._ids = ids

    def all(self) -> dict[str, Any]:
        fields = self._struct()
        assert not self._tokens, f"cannot read from {self._tokens[0]!r}"
        return fields

    def _struct(self) -> dict[str, Any]:
        fields = {}
        while self._tokens and self._tokens[0] != ")":
            name, equals = self._tokens.pop(0), self._tokens.pop(0)
            assert equals == "=", f"expected = after {name}"
            fields[name] = self._one()
        return fields

    def _one(self) -> Any:
        token = self._tokens.pop(0)
        if token == "(":
            fields = self._struct()
            self._tokens.pop(0)
            return fields
        if token == "[":
            return list(self._items())
        value = ast.literal_eval(token)
        return self._ids.get(value, value) if isinstance(value, str) else value

    def _items(self) -> Iterator[Any]:
        while self._tokens[0] != "]":
            yield self._one()
            if self._tokens[0] == ",":
                self._tokens.pop(0)
        self._tokens.pop(0)


def lines_of(path: Path) -> list[str]:
    """The lines of a conversation, each as one however many it takes in the file."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\n {4,}", " ", text).splitlines()


async def replayed(profile: Profile, path: Path) -> list[str]:
    """Replay a conversation with a broker."""
    talk = Talk(profile, f"conversation-{path.stem}-{secrets.token_hex(3)}")
    conversation = Conversation(talk)
    await talk.begin()
    try:
        return await conversation.replay(lines_of(path))
    finally:
        await talk.end()


async def replay_all(address: str) -> dict[str, Replay]:
    """Replay all conversations with a broker, all at a time."""
    profile = await profile_of(address)
    told = await asyncio.gather(
        *(replayed(profile, FOLDER / f"{name}.txt") for name in CONVERSATIONS),
        return_exceptions=True,
    )
    return dict(zip(CONVERSATIONS, told, strict=True))


def compare(name: str, replay: Replay) -> None:
    """AssertionError: a replay differs from the file."""
    if isinstance(replay, BaseException):
        raise replay
    assert replay == lines_of(FOLDER / f"{name}.txt")


async def _main(address: str, path: Path) -> None:
    for line in await replayed(await profile_of(address), path):
        wrapped = textwrap.wrap(
            line, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        sys.stdout.write("\n".join(wrapped if not line.startswith("#") else [line]) + "\n")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2])))
