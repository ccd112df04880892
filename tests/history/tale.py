"""Histories made by hand: a coordinator that plays fair unless a test tells it otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kohort.embedded.consumer import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.embedded.deferral import NOTHING, Pending, encode_pending
from kohort.model import client_facts as c
from kohort.model import facts as f
from kohort.model import wire_facts as w
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.history_record import AnyFact, Recorded
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
from kohort.model.instants import Instant, Millis
from kohort.model.world_facts import PolicyDeclared, TopicSized

G = GroupId("g")
CONSUMER = ProtocolType("consumer")
NONE = ErrorCode.NONE
API = w.GroupApi
Pendings = Pending | Mapping[str, Pending]


def m(name: str) -> MemberId:
    """An id that nobody can guess."""
    return MemberId(f"{name}-0123456789abcdef-{name:0>8}")


def tps(*numbers: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, n) for n in numbers)


def assignment(*numbers: int, pending: Pendings = NOTHING, of: str = "") -> bytes:
    mine = pending if isinstance(pending, Pending) else pending.get(of, NOTHING)
    user_data = encode_pending(mine)
    return encode_assignment(Assignment(partitions=frozenset(tps(*numbers)), user_data=user_data))


def _encoded(assigned: Mapping[str, tuple[int, ...]], pending: Pendings) -> Any:
    return tuple((m(n), assignment(*p, pending=pending, of=n)) for n, p in assigned.items())


def subscription(
    owned: tuple[int, ...] = (), generation: int = -1, topics: tuple[str, ...] = ("t",)
) -> bytes:
    return encode_subscription(
        Subscription(
            topics=frozenset(topics),
            owned=frozenset(tps(*owned)),
            generation_id=GenerationId(generation),
        )
    )


class Tale:
    """A history under way; every method adds facts, all of them lawful by themselves."""

    def __init__(self, *, booted: bool = True, partitions: int = 4, **settings: int) -> None:
        self.history: list[Recorded] = []
        self.now = 0
        self.life = 1
        self.generation = 0
        self.members: dict[str, tuple[int, ...]] = {}
        self.protocol = "cooperative-sticky"
        self.session_ms = 10_000
        self.rebalance_ms = 60_000
        self.instances: dict[str, str] = {}
        self.lives: dict[str, int] = {}
        self._token = self._ticket = self._request = 0
        if booted:
            self.boot(**settings)
            self.add(TopicSized(topic="t", partitions=partitions))
            self.add(f.GroupCreated(group_id=G, simple=False))

    # -- basics ------------------------------------------------------------------------------------

    def add(self, fact: AnyFact, source: str = "broker", life: int | None = None) -> Tale:
        self.history.append(
            Recorded(
                sequence=len(self.history) + 1,
                at=Instant(self.now),
                incarnation=self.life if life is None else life,
                source=source,
                fact=fact,
            )
        )
        return self

    def wait(self, millis: int) -> Tale:
        self.now += millis * 1_000
        return self

    def boot(self, **settings: int) -> Tale:
        named = tuple((k.replace("_", "."), v) for k, v in settings.items())
        return self.add(w.CoordinatorBooted(records=0, settings=named))

    def crash(self) -> Tale:
        self.add(w.CoordinatorStopped(crashed=True))
        self.life += 1
        return self.wait(100)

    def careless(self) -> Tale:
        """The policy promises neither balance nor few moves."""
        words = ("cooperative", "complete")
        name = ProtocolName(self.protocol)
        return self.add(PolicyDeclared(protocol_name=name, promises=words))

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, api: w.GroupApi, who: str = "", generation: int = -1, **more: Any) -> Token:
        self._token += 1
        token = Token(self._token)
        fields: dict[str, Any] = {
            "group_id": G,
            "api": api,
            "version": 5,
            "token": token,
            "connection": ConnectionId(1),
            "correlation_id": int(token),
            "member_id": m(who) if who else MemberId(""),
            "generation_id": GenerationId(generation),
        }
        self.add(w.RequestReceived(**{**fields, **more}))
        return token

    def answer(
        self,
        token: Token,
        api: w.GroupApi,
        who: str = "",
        generation: int = -1,
        error: ErrorCode = NONE,
        **more: Any,
    ) -> Tale:
        fields: dict[str, Any] = {
            "group_id": G,
            "api": api,
            "token": token,
            "connection": ConnectionId(1),
            "correlation_id": int(token),
            "error": error,
            "member_id": m(who) if who else MemberId(""),
            "generation_id": GenerationId(generation),
        }
        return self.add(w.AnswerSent(**{**fields, **more}))

    def call(
        self, api: w.GroupApi, who: str = "", generation: int | None = None, **more: Any
    ) -> Tale:
        """A request and its answer at once."""
        number = self.generation if generation is None else generation
        asked = {k: more.pop(k) for k in ("body", "group_instance_id", "group_id") if k in more}
        told = dict(asked)
        told["body"] = more.pop("told", None)
        token = self.ask(api, who, number, **asked)
        return self.answer(token, api, who, number, **told, **more)

    def beat(self, who: str, generation: int | None = None, error: ErrorCode = NONE) -> Tale:
        return self.call(API.HEARTBEAT, who, generation, error=error)

    def beat_all(self, seconds: int) -> Tale:
        """Everybody beats, every three seconds."""
        for _ in range(seconds // 3):
            self.wait(3_000)
            for name in self.members:
                self.beat(name)
        return self

    # -- the log -----------------------------------------------------------------------------------

    def persist(self, *, ok: bool | None = True, **what: Any) -> Tale:
        """A write; ``ok`` None: it has no end."""
        self._ticket += 1
        ticket = Ticket(self._ticket)
        self.add(w.PersistBegun(group_id=G, ticket=ticket, **what))
        if ok is None:
            return self
        self.wait(1)
        error = ErrorCode.KAFKA_STORAGE_ERROR
        return self.add(
            w.PersistOk(group_id=G, ticket=ticket)
            if ok
            else w.PersistFailed(group_id=G, ticket=ticket, error=error)
        )

    def persist_group(self, *, ok: bool | None = True) -> Tale:
        names = [(m(name), self._instance(name)) for name in self.members]
        return self.persist(
            ok=ok, generation_id=GenerationId(self.generation), members=tuple(names)
        )

    def _instance(self, name: str) -> GroupInstanceId | None:
        held = self.instances.get(name)
        return None if held is None else GroupInstanceId(held)

    # -- members -----------------------------------------------------------------------------------

    def join_body(
        self, owned: tuple[int, ...] = (), generation: int = -1, **more: Any
    ) -> w.JoinAsked:
        fields: dict[str, Any] = {
            "client_id": "c",
            "session_timeout_ms": Millis(self.session_ms),
            "rebalance_timeout_ms": Millis(self.rebalance_ms),
            "protocol_type": CONSUMER,
            "protocols": ((ProtocolName(self.protocol), subscription(owned, generation)),),
        }
        return w.JoinAsked(**{**fields, **more})

    def hand_out(self, name: str) -> Tale:
        token = self.ask(API.JOIN_GROUP, body=self.join_body())
        state = GroupState.EMPTY
        self.add(f.MemberIdHandedOut(group_id=G, state=state, member_id=m(name)))
        return self.answer(token, API.JOIN_GROUP, name, error=ErrorCode.MEMBER_ID_REQUIRED)

    def arrive(self, name: str, **body: Any) -> Token:
        """A newcomer's JoinGroup is parked."""
        self.hand_out(name)
        token = self.ask(API.JOIN_GROUP, name, body=self.join_body(**body))
        state = GroupState.EMPTY
        self.add(f.PendingMemberJoined(group_id=G, state=state, member_id=m(name)))
        self.add(
            f.MemberAdded(
                group_id=G,
                member_id=m(name),
                group_instance_id=self._instance(name),
                client_id="c",
                client_host="/127.0.0.1",
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
            )
        )
        return self._parked(name, token)

    def _parked(self, name: str, token: Token) -> Token:
        number = GenerationId(self.generation)
        self.add(f.MemberRejoined(group_id=G, member_id=m(name), generation_id=number))
        return token

    def come_back(self, name: str, owned: tuple[int, ...] = (), claim: int | None = None) -> Token:
        """A known member's JoinGroup is parked."""
        generation = self.generation if claim is None else claim
        token = self.ask(API.JOIN_GROUP, name, body=self.join_body(owned, generation))
        return self._parked(name, token)

    def leave(self, name: str) -> Tale:
        token = self.ask(API.LEAVE_GROUP, name, body=w.LeaveAsked(members=((m(name), None),)))
        self.add(
            f.MemberLeft(
                group_id=G,
                generation_id=GenerationId(self.generation),
                member_id=m(name),
                group_instance_id=None,
                client_reason=None,
                pending=False,
            )
        )
        self.members.pop(name)
        return self.answer(token, API.LEAVE_GROUP, name)

    def expire(self, name: str) -> Tale:
        self.members.pop(name, None)
        return self.add(
            f.MemberExpired(
                group_id=G,
                generation_id=GenerationId(self.generation),
                member_id=m(name),
                group_instance_id=self._instance(name),
            )
        )

    # -- rounds ------------------------------------------------------------------------------------

    def start(
        self,
        previous: GroupState = GroupState.STABLE,
        cause: f.RebalanceCause = f.RebalanceCause.MEMBER_ADDED,
        members: tuple[str, ...] = (),
    ) -> Tale:
        return self.add(
            f.RebalanceStarted(
                group_id=G,
                generation_id=GenerationId(self.generation),
                previous_state=previous,
                cause=cause,
                member_ids=tuple(map(m, members)),
            )
        )

    def open(
        self,
        tokens: Mapping[str, Token | None],
        leader: str | None = None,
        generation: int | None = None,
        *,
        answers: bool = True,
    ) -> Tale:
        """The join phase ends; the members with a token are answered."""
        self.generation = self.generation + 1 if generation is None else generation
        leader = leader or next(iter(tokens))
        self.members = {name: self.members.get(name, ()) for name in tokens}
        self.add(
            f.JoinPhaseCompleted(
                group_id=G,
                generation_id=GenerationId(self.generation),
                protocol_type=CONSUMER,
                protocol_name=ProtocolName(self.protocol),
                leader_id=m(leader),
                member_ids=tuple(map(m, tokens)),
            )
        )
        for name, token in tokens.items() if answers else ():
            everybody = tuple((m(n), b"") for n in tokens) if name == leader else ()
            told = w.JoinTold(
                leader_id=m(leader), protocol_name=ProtocolName(self.protocol), members=everybody
            )
            if token is not None:
                self.answer(token, API.JOIN_GROUP, name, self.generation, body=told)
        return self

    def sync(
        self,
        assigned: dict[str, tuple[int, ...]],
        *,
        sent: dict[str, tuple[int, ...]] | None = None,
        stored: bool = True,
        only: tuple[str, ...] | None = None,
        pending: Pendings = NOTHING,
    ) -> Tale:
        """The leader sends ``sent``, the group stores ``assigned``, everybody gets theirs."""
        payload = _encoded(sent or assigned, pending)
        tokens = {}
        for place, name in enumerate(self.members):
            asked = w.SyncAsked(assignments=payload if place == 0 else ())
            tokens[name] = self.ask(API.SYNC_GROUP, name, self.generation, body=asked)
        if stored:
            self.persist_group()
        self.add(
            f.GroupStabilized(
                group_id=G,
                generation_id=GenerationId(self.generation),
                assignments=_encoded(assigned, pending),
            )
        )
        self.members = {name: assigned.get(name, ()) for name in self.members}
        for name, token in tokens.items():
            if only is None or name in only:
                mine = assignment(*assigned.get(name, ()), pending=pending, of=name)
                told = w.SyncTold(assignment=mine)
                self.answer(token, API.SYNC_GROUP, name, self.generation, body=told)
        return self

    def stable(self, **assigned: tuple[int, ...]) -> Tale:
        """A group comes to be, all at once."""
        tokens = {}
        for place, name in enumerate(assigned):
            tokens[name] = self.arrive(name)
            if place == 0:
                self.start(GroupState.EMPTY, members=(name,))
        self.wait(3_000)
        return self.open(tokens).sync(assigned)

    def again(
        self, *, claims: bool = True, claim: int | None = None, pending: Pending = NOTHING,
        **assigned: tuple[int, ...],
    ) -> Tale:  # fmt: skip
        """Another round; members that are new come in, the others claim what they have."""
        tokens = {}
        started = False
        for name in assigned:
            if name not in self.members:
                tokens[name] = self.arrive(name)
                cause = f.RebalanceCause.MEMBER_ADDED
            else:
                owned = self.members[name] if claims else ()
                tokens[name] = self.come_back(name, owned, claim)
                cause = f.RebalanceCause.METADATA_UPDATED
            if not started:
                self.start(cause=cause, members=(name,))
                started = True
        return self.wait(100).open(tokens).sync(assigned, pending=pending)

    # -- commits -----------------------------------------------------------------------------------

    def commit(
        self,
        who: str,
        generation: int | None = None,
        *,
        stored: bool | None = True,
        error: ErrorCode = NONE,
        **offsets: int,
    ) -> Tale:
        """A commit of ``p0=7`` and so on."""
        pairs = tuple((TopicPartition("t", int(k[1:])), v) for k, v in offsets.items())
        number = self.generation if generation is None else generation
        token = self.ask(API.OFFSET_COMMIT, who, number, body=w.CommitAsked(offsets=pairs))
        if stored is not None:
            self.persist(ok=stored, offsets=pairs)
        told = w.CommitTold(errors=tuple((tp, error) for tp, _ in pairs))
        return self.answer(token, API.OFFSET_COMMIT, who, number, error=error, body=told)

    def fetch(self, **offsets: int | None) -> Tale:
        """A fetch that is answered ``p0=7``, or ``p0=None``."""
        pairs = tuple((TopicPartition("t", int(k[1:])), v) for k, v in offsets.items())
        asked = w.FetchAsked(partitions=tuple(tp for tp, _ in pairs))
        return self.call(
            API.OFFSET_FETCH, generation=-1, body=asked, told=w.FetchTold(offsets=pairs)
        )

    # -- clients -----------------------------------------------------------------------------------

    def heard(self, fact: AnyFact, name: str, life: int | None = None) -> Tale:
        """A fact from a process, in its present life unless told otherwise."""
        return self.add(fact, name, self.lives.get(name, 1) if life is None else life)

    def process(self, name: str, life: int | None = None, **more: Any) -> Tale:
        return self.heard(c.ProcessStarted(group_id=G, client_id=name, **more), name, life)

    def killed(self, name: str, *, seen: bool = True) -> Tale:
        """The process ends; its next facts have the next incarnation."""
        if seen:
            self.heard(c.ProcessKilled(group_id=G, member_id=m(name)), name)
        self.lives[name] = self.lives.get(name, 1) + 1
        return self

    def told(
        self,
        name: str,
        kind: str,
        *numbers: int,
        life: int | None = None,
        ended: bool = True,
        generation: int | None = None,
        member: str | None = None,
    ) -> Tale:
        """A callback, from its start to its end."""
        fields: dict[str, Any] = {
            "group_id": G,
            "member_id": m(member or name),
            "generation_id": GenerationId(self.generation if generation is None else generation),
            "kind": c.CallbackKind(kind),
            "partitions": tps(*numbers),
        }
        self.heard(c.CallbackStarted(**fields), name, life)
        return self.heard(c.CallbackEnded(**fields), name, life) if ended else self

    def position(self, name: str, number: int, offset: int, *, sought: bool = False) -> Tale:
        tp = TopicPartition("t", number)
        fact = c.PositionSet(group_id=G, partition=tp, offset=offset, sought=sought)
        return self.heard(fact, name)

    def deliver(self, name: str, number: int, first: int, last: int) -> Tale:
        tp = TopicPartition("t", number)
        fact = c.RecordsDelivered(group_id=G, partition=tp, first=first, last=last)
        return self.heard(fact, name)

    def client_commit(
        self, name: str, outcome: str = "ok", *, refused: tuple[int, ...] = (),
        meanwhile: Callable[[], object] = lambda: None, **offsets: int,
    ) -> Tale:  # fmt: skip
        pairs = tuple((TopicPartition("t", int(k[1:])), v) for k, v in offsets.items())
        self._request += 1
        self.heard(c.CommitSent(group_id=G, request=self._request, offsets=pairs), name)
        meanwhile()
        ended = c.Outcome(outcome)
        concluded = c.CommitConcluded(
            group_id=G, request=self._request, outcome=ended, refused=tps(*refused)
        )
        return self.heard(concluded, name)

    def request(self, name: str, api: w.GroupApi, answered_after_ms: int | None = 1) -> Tale:
        """A client's request; None: no answer."""
        self._request += 1
        self.add(c.RequestSent(group_id=G, api=api, request=self._request), name, 1)
        if answered_after_ms is None:
            return self
        self.wait(answered_after_ms)
        fact = c.ResponseReceived(group_id=G, api=api, request=self._request, outcome=c.Outcome.OK)
        return self.add(fact, name, 1)
