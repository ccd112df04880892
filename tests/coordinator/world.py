"""One coordinator under test: methods feed its events, and lines show its effects.

A test states events and compares the whole list of effects. Tokens have names (``a.join``), ids
are counted per client (``a-1``), time is in milliseconds, and ``check()`` runs after every step.

Reservations of generations are written at once and not shown, unless a test asks for them
(``reservations_wait``): every round has one, and few scenarios are about it.
"""

from __future__ import annotations

from typing import Any

from tests.coordinator.showing import show_answer, show_fact, show_record

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.interface import (
    Append,
    Appended,
    AppendFailed,
    DescribeAnswer,
    DescribeGroups,
    Effect,
    Event,
    GroupToFetch,
    Heartbeat,
    HeartbeatAnswer,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListAnswer,
    ListGroups,
    Loaded,
    OffsetCommit,
    OffsetFetch,
    Replay,
    Respond,
    SyncGroup,
    TimeOfDay,
    TokensDropped,
)
from kohort.coordinator.records import GenerationRecord, Record
from kohort.model.errors import ErrorCode
from kohort.model.group_config import GroupConfig
from kohort.model.ids import (
    ConnectionId,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    Ticket,
    Token,
    TopicPartition,
)
from kohort.model.instants import Instant, WallMillis
from kohort.model.join import JoinProtocol
from kohort.model.positions import Position

WALL = WallMillis(1_700_000_000_000)


def subscription(*topics: str) -> bytes:
    """A consumer subscription, version 0, without user data."""
    parts = [(0).to_bytes(2, "big"), len(topics).to_bytes(4, "big")]
    parts += [len(t).to_bytes(2, "big") + t.encode() for t in topics]
    return b"".join(parts) + (0).to_bytes(4, "big")


class World:
    """A coordinator, a clock and a log that writes when it is told to."""

    def __init__(self, *, delay: int = 3_000, **config: int) -> None:
        settings = {"initial_rebalance_delay_ms": delay, **config}
        self.config = GroupConfig(**settings)
        self.coordinator = Coordinator(self.config, self._make_id)
        self.now = Instant(0)
        self.effects: list[Effect] = []
        self.tokens: dict[Token, str] = {}
        self.answers: dict[str, Any] = {}
        self.unwritten: list[Ticket] = []
        self.reservations_wait = False
        self.durable: dict[Ticket, tuple[Record, ...]] = {}
        self._records: dict[Ticket, tuple[Record, ...]] = {}
        self._shown: list[Ticket] = []
        """Tickets that tests see, by their number less one."""
        self._ids: dict[str, int] = {}
        self.feed(TimeOfDay(wall=WALL))

    def _make_id(self, prefix: str) -> str:
        self._ids[prefix] = self._ids.get(prefix, 0) + 1
        return f"{prefix}-{self._ids[prefix]}"

    @property
    def log(self) -> list[Record]:
        """The durable records, in the log's order."""
        return [record for ticket in sorted(self.durable) for record in self.durable[ticket]]

    # -- stepping ------------------------------------------------------------------------------

    def feed(self, event: Event) -> list[str]:
        return self._after(self.coordinator.handle(event, self.now))

    def wait(self, millis: int) -> list[str]:
        """Let time pass, stopping at every deadline on the way as a shell would."""
        target = self.now + millis * 1_000
        lines: list[str] = []
        while True:
            due = self.coordinator.next_deadline()
            if due is None or due > target:
                break
            self.now = max(self.now, due)
            lines += self._after(self.coordinator.advance(self.now))
        self.now = Instant(target)
        return lines + self._after(self.coordinator.advance(self.now))

    def _after(self, effects: list[Effect]) -> list[str]:
        self.coordinator.check()
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Respond):
                name = self.tokens[effect.token]
                assert name not in self.answers, f"{name} was answered twice"
                self.answers[name] = effect.answer
            elif isinstance(effect, Append):
                self.unwritten.append(effect.ticket)
                self._records[effect.ticket] = effect.records
        hidden = [e.ticket for e in effects if isinstance(e, Append) and self._is_hidden(e)]
        self._shown += [
            e.ticket for e in effects if isinstance(e, Append) and e.ticket not in hidden
        ]
        lines = [
            self.show(effect)
            for effect in effects
            if not isinstance(effect, Append) or effect.ticket not in hidden
        ]
        for ticket in hidden:
            lines += self._write(ticket)
        return lines

    def _is_hidden(self, effect: Append) -> bool:
        return not self.reservations_wait and all(
            isinstance(record, GenerationRecord) for record in effect.records
        )

    def _write(self, ticket: Ticket) -> list[str]:
        self.unwritten.remove(ticket)
        self.durable[ticket] = self._records[ticket]
        return self.feed(Appended(ticket=ticket))

    def token(self, name: str) -> Token:
        if name in self.tokens.values():
            serial = 2
            while f"{name}#{serial}" in self.tokens.values():
                serial += 1
            name = f"{name}#{serial}"
        token = Token(len(self.tokens) + 1)
        self.tokens[token] = name
        return token

    def written(self) -> list[str]:
        """The log has written everything that it was given."""
        lines: list[str] = []
        while self.unwritten:
            lines += self._write(self.unwritten[0])
        return lines

    def write(self, ticket: int) -> list[str]:
        """The log has written the write of that number."""
        return self._write(self._shown[ticket - 1])

    def refuse(self, error: ErrorCode, ticket: int | None = None) -> list[str]:
        """The log refuses a write, by default the oldest."""
        chosen = self.unwritten[0] if ticket is None else self._shown[ticket - 1]
        self.unwritten.remove(chosen)
        return self.feed(AppendFailed(ticket=chosen, error=error))

    def lose(self, *names: str) -> list[str]:
        """The connection breaks on which these requests wait for their answers."""
        tokens = tuple(t for t, name in self.tokens.items() if name in names)
        assert len(tokens) == len(names)
        return self.feed(TokensDropped(tokens=tokens))

    def restart(self) -> list[str]:
        """The process ends without warning; a new one reads what the log holds."""
        self.durable = {Ticket(0): tuple(self.log)}
        self.unwritten.clear()
        self._records.clear()
        self._shown.clear()
        self.coordinator = Coordinator(self.config, self._make_id)
        lines = self.feed(TimeOfDay(wall=WallMillis(WALL + self.now // 1_000)))
        lines += self.feed(Replay(records=self.durable[Ticket(0)]))
        return lines + self.feed(Loaded())

    # -- requests ------------------------------------------------------------------------------

    def join(
        self,
        client: str,
        member_id: str | None = None,
        *,
        group: str = "g",
        protocols: str | dict[str, bytes] = "range",
        protocol_type: str = "consumer",
        session: int = 10_000,
        rebalance: int = 60_000,
        old: bool = False,
        skips: bool = True,
        instance: str | None = None,
        reason: str | None = None,
        name: str | None = None,
    ) -> list[str]:
        """``client`` joins; with ``member_id`` None as ``client``-1, with "" as a stranger."""
        if isinstance(protocols, str):
            protocols = {p: subscription("t") for p in protocols.split()}
        event = JoinGroup(
            token=self.token(name or f"{client}.join"),
            group_id=GroupId(group),
            member_id=MemberId(f"{client}-1" if member_id is None else member_id),
            group_instance_id=instance_id(instance),
            client_id=client,
            client_host="/127.0.0.1",
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            protocol_type=ProtocolType(protocol_type),
            protocols=tuple(
                JoinProtocol(name=ProtocolName(p), metadata=m) for p, m in protocols.items()
            ),
            reason=reason,
            accepts_member_id_required=not old,
            knows_skip_assignment=skips,
        )
        return self.feed(event)

    def enter(self, client: str, **how: Any) -> list[str]:
        """Both steps of a dynamic member's first join; the effects of the second."""
        self.join(client, "", **how)
        return self.join(client, **how)

    def sync(
        self,
        client: str,
        generation: int,
        plan: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        member_id: str | None = None,
        names_protocol: bool = True,
        instance: str | None = None,
        name: str | None = None,
    ) -> list[str]:
        event = SyncGroup(
            token=self.token(name or f"{client}.sync"),
            group_id=GroupId(group),
            generation_id=GenerationId(generation),
            member_id=MemberId(member_id or f"{client}-1"),
            group_instance_id=instance_id(instance),
            protocol_type=None if protocol_type is None else ProtocolType(protocol_type),
            protocol_name=None if protocol_name is None else ProtocolName(protocol_name),
            names_protocol=names_protocol,
            assignments=tuple((MemberId(m), a) for m, a in (plan or {}).items()),
        )
        return self.feed(event)

    def beat(
        self,
        client: str,
        generation: int,
        *,
        group: str = "g",
        member_id: str | None = None,
        instance: str | None = None,
    ) -> str:
        """A heartbeat; the name of the error it is answered with."""
        event = Heartbeat(
            token=self.token(f"{client}.beat"),
            group_id=GroupId(group),
            generation_id=GenerationId(generation),
            member_id=MemberId(member_id or f"{client}-1"),
            group_instance_id=instance_id(instance),
        )
        before = len(self.effects)
        self.feed(event)
        (answer,) = [
            e.answer
            for e in self.effects[before:]
            if isinstance(e, Respond) and e.token == event.token
        ]
        assert isinstance(answer, HeartbeatAnswer)
        return answer.error.name

    def leave(self, *clients: str, group: str = "g", reason: str | None = None) -> list[str]:
        return self.leave_ids(*(f"{c}-1" for c in clients), group=group, reason=reason)

    def leave_ids(
        self,
        *member_ids: str,
        group: str = "g",
        instance: str | None = None,
        reason: str | None = None,
    ) -> list[str]:
        event = LeaveGroup(
            token=self.token("leave"),
            group_id=GroupId(group),
            members=tuple(
                LeavingMember(
                    member_id=MemberId(m),
                    group_instance_id=instance_id(instance),
                    reason=reason,
                )
                for m in member_ids
            ),
        )
        return self.feed(event)

    def commit(
        self,
        client: str,
        generation: int,
        offsets: dict[str, int],
        *,
        group: str = "g",
        member_id: str | None = None,
        metadata: str = "",
        leader_epoch: int = -1,
        retention: int | None = None,
        new_client: bool = True,
        unknown: tuple[str, ...] = (),
        instance: str | None = None,
        over: int = 1,
    ) -> list[str]:
        """Commit; ``over`` numbers the connection, of which later ones are higher."""
        event = OffsetCommit(
            token=self.token(f"{client or 'tool'}.commit"),
            group_id=GroupId(group),
            generation_id=GenerationId(generation),
            member_id=MemberId(
                member_id if member_id is not None else (f"{client}-1" if client else "")
            ),
            group_instance_id=instance_id(instance),
            offsets=tuple((tp(p), Position(o, leader_epoch, metadata)) for p, o in offsets.items()),
            retention_ms=retention,
            knows_group_id_not_found=new_client,
            unknown_partitions=frozenset(tp(p) for p in unknown),
            connection=ConnectionId(over),
        )
        return self.feed(event)

    def fetch(self, *partitions: str, group: str = "g") -> list[str]:
        """Committed offsets of a group; of all partitions if none are named."""
        wanted = tuple(tp(p) for p in partitions) or None
        event = OffsetFetch(
            token=self.token("fetch"),
            groups=(GroupToFetch(group_id=GroupId(group), partitions=wanted),),
        )
        return self.feed(event)

    def state(self, group: str = "g") -> str:
        """State and generation-free picture of a group, as DescribeGroups returns it."""
        event = DescribeGroups(
            token=self.token("describe"),
            group_ids=(GroupId(group),),
            knows_group_id_not_found=False,
        )
        before = len(self.effects)
        self.feed(event)
        answer = next(
            e.answer
            for e in self.effects[before:]
            if isinstance(e, Respond) and isinstance(e.answer, DescribeAnswer)
        )
        return str(answer.groups[0].state)

    def listed(self, *states: str, types: tuple[str, ...] = ()) -> dict[str, str]:
        event = ListGroups(token=self.token("list"), states=states, types=types)
        before = len(self.effects)
        self.feed(event)
        answer = next(
            e.answer
            for e in self.effects[before:]
            if isinstance(e, Respond) and isinstance(e.answer, ListAnswer)
        )
        return {g.group_id: g.state.value for g in answer.groups}

    # -- scenes --------------------------------------------------------------------------------

    def joined(self, *clients: str, **how: Any) -> None:
        """A group of these clients after its first join phase; the first one leads."""
        for client in clients:
            self.enter(client, **how)
        self.written()
        while f"{clients[0]}.join#2" not in self.answers:
            due = self.coordinator.next_deadline()
            assert due is not None, "the initial window never ends"
            self.wait(-(-(due - self.now) // 1_000))
        assert self.answers[f"{clients[0]}.join#2"].generation_id == 1

    def stable(self, *clients: str, **how: Any) -> None:
        """A Stable group of these clients in generation 1; client x has the assignment b"x"."""
        self.joined(*clients, **how)
        where = {"group": how["group"]} if "group" in how else {}
        named = {
            "protocol_name": how.get("protocols", "range").split()[0],
            "protocol_type": how.get("protocol_type", "consumer"),
        }
        plan = {f"{c}-1": c.encode() for c in clients}
        for client in clients:
            self.sync(client, 1, plan if client == clients[0] else None, **named, **where)
        self.written()

    def static(self, *names: str, **how: Any) -> None:
        """A Stable group of static members in generation 1; x is instance i-x with id i-x-1."""
        for name in names:
            self.join(name, "", instance=f"i-{name}", **how)
        self.wait(2 * self.config.initial_rebalance_delay_ms)
        plan = {f"i-{name}-1": name.encode() for name in names}
        protocol = how.get("protocols", "range").split()[0]
        for name in names:
            given = plan if name == names[0] else None
            self.sync(name, 1, given, member_id=f"i-{name}-1", protocol_name=protocol)
        self.written()
        assert self.state() == "Stable"

    def stable_with(self, metadata: bytes) -> None:
        """A Stable group of member a with this metadata and a session of half an hour."""
        for member_id in ("", None):
            self.join("a", member_id, protocols={"range": metadata}, session=1_800_000)
        self.wait(self.config.initial_rebalance_delay_ms)
        self.sync("a", 1, {})
        self.written()

    # -- showing -------------------------------------------------------------------------------

    def show(self, effect: Effect) -> str:
        if isinstance(effect, Respond):
            return f"{self.tokens[effect.token]} <- {show_answer(effect.answer)}"
        if isinstance(effect, Append):
            shown = ", ".join(show_record(r) for r in effect.records)
            return f"write {self._shown.index(effect.ticket) + 1}: {shown}"
        return f"fact {show_fact(effect)}"


def instance_id(text: str | None) -> GroupInstanceId | None:
    return None if text is None else GroupInstanceId(text)


def tp(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))
