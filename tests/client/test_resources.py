"""Groups that share named resources, on the embedded broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from tests.client.sharing import Crew, a_member_returns, copies_move_resources
from tests.client.stage import expel
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.config import parse_client_settings
from kohort.client.errors import RequestFailed
from kohort.client.membership import GroupMembership, Membership
from kohort.client.resources import ResourceGroup
from kohort.engine.resource_protocol import EVERY, resource_protocol
from kohort.model.errors import ConfigError
from kohort.model.ids import ProtocolName
from kohort.model.join import JoinProtocol
from kohort.policies import resource_groups
from kohort.policies.resource_groups import ResourceAssigner, Sharer

MakeCrew = Callable[..., Crew]


@pytest.fixture
def make_crew(kohort_broker: EmbeddedBroker) -> Iterator[MakeCrew]:
    with ExitStack() as stack:
        yield lambda **more: Crew(kohort_broker.bootstrap_servers, stack, **more)


def test_members_share_resources_and_no_resource_is_with_two(make_crew: MakeCrew) -> None:
    crew = make_crew()
    for shares in ([12], [6, 6], [4, 4, 4]):
        crew.join()
        crew.settled(*shares)
    crew.leave(crew.members[0])
    crew.settled(6, 6)
    assert crew.collisions == []


def test_weights_balance_the_load_and_not_the_number(make_crew: MakeCrew) -> None:
    crew = make_crew(**{"scheduled.rebalance.max.delay.ms": 60_000})
    crew.names = {name: 11 if name == "r3" else 1 for name in crew.names}
    for shares in ([12], [1, 11]):
        crew.join()
        crew.settled(*shares)
    (heavy,) = (member for member in crew.members if len(member.owned()) == 1)
    assert heavy.owned() == {"r3"}
    crew.leave(heavy)
    crew.settled(11)
    crew.join()
    crew.settled(1, 11)
    assert crew.members[-1].owned() == {"r3"}, "waits work with weights, too"
    assert crew.collisions == []


def test_a_changed_list_is_shared_out_again(make_crew: MakeCrew) -> None:
    crew = make_crew()
    crew.join()
    crew.join()
    crew.settled(6, 6)
    before = [member.owned() for member in crew.members]
    crew.names = [*crew.names[2:], "new", "newer"]
    crew.members[1].resources_changed()
    crew.settled(6, 6)
    for member, owned in zip(crew.members, before, strict=True):
        assert member.owned() >= owned & set(crew.names), "nothing moves that need not"


def test_a_list_that_changes_while_the_leader_assigns_is_shared_out_too(
    make_crew: MakeCrew,
) -> None:
    names = ["old"]

    def resources() -> list[str]:
        told = list(names)
        if told == ["old"]:
            names[:] = ["new"]
            group.resources_changed()  # the running rebalance has the old list
        return told

    with ResourceGroup(make_crew().settings, resources=resources) as group:
        until(lambda: group.owned() == {"new"}, "the new list is shared out")


def test_waits_and_drains_work_as_for_partitions(make_crew: MakeCrew) -> None:
    crew = make_crew(**{"scheduled.rebalance.max.delay.ms": 60_000})
    a_member_returns(crew)
    crew.members[2].drain()
    crew.settled(0, 6, 6)
    assert crew.members[2].drained


def test_resources_of_a_leader_that_left_wait_too(make_crew: MakeCrew) -> None:
    crew = make_crew(**{"scheduled.rebalance.max.delay.ms": 600_000})
    for shares in ([12], [6, 6], [4, 4, 4]):
        crew.join()
        crew.settled(*shares)
    mine = crew.members[0].owned()
    crew.leave(crew.members[0])
    sentence = f"4 resources wait up to 600.0 s for the member that had them: {min(mine)}, "
    until(lambda: sentence[:21] in str(crew.members[0].status().waiting_for), "the wait is told")
    assert sentence[-15:] in str(crew.members[0].status().waiting_for)
    again = crew.join()
    crew.settled(4, 4, 4)
    assert again.owned() == mine


def test_resources_with_state_move_when_copies_are_warm(make_crew: MakeCrew) -> None:
    copies_move_resources(make_crew(**{"kohort.standby.replicas": 1}))


def test_copies_that_the_group_wants_no_more_are_named(make_crew: MakeCrew) -> None:
    crew = make_crew()
    dropped: list[frozenset[str]] = []
    crew.join(on_prepare=len)
    crew.settled(12)
    second = crew.join(on_prepare=len, on_discard=dropped.append)
    until(lambda: len(second.snapshot().preparing) == 6, "six resources are announced")
    before = second.snapshot().preparing
    crew.names = crew.names[:6]
    crew.members[0].resources_changed()
    until(lambda: bool(dropped), "copies of former resources are not wanted")
    assert dropped[0] >= before - set(crew.names)


def test_a_deadline_ends_the_preparation_of_resources(make_crew: MakeCrew) -> None:
    crew = make_crew(**{"kohort.handover.timeout.ms": 300})
    for shares in ([12], [6, 6]):
        crew.join(on_prepare=len)
        crew.settled(*shares)
    assert crew.collisions == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kohort.stateful.topics": "t"}, "here on_prepare says that all resources have state"),
        ({"kohort.standby.replicas": 1}, "there is no on_prepare"),
    ],
)
def test_settings_about_state_need_a_callback(more: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ResourceGroup(more, group_id="g", bootstrap_servers="h:1", resources=list)


def test_a_policy_of_the_application_prepares_nothing() -> None:
    with pytest.raises(ConfigError, match="no effect with a policy"):
        ResourceGroup(
            group_id="g",
            bootstrap_servers="h:1",
            resources=list,
            on_prepare=len,
            policy=lambda _members, _names: {},
        )


@pytest.mark.parametrize("name", ["scheduled.rebalance.max.delay.ms", "kohort.max.moves.per.round"])
def test_waits_and_limits_of_moves_beside_a_policy_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no effect with a policy of the application: leave"):
        ResourceGroup(
            {"group.id": "g", "bootstrap.servers": "h:1", name: 5},
            resources=list,
            policy=lambda _members, _names: {},
        )


def test_the_application_has_a_policy_of_its_own(make_crew: MakeCrew) -> None:
    """Everything goes to the oldest member."""

    def oldest(members: Mapping[str, Sharer], names: Sequence[str]) -> dict[str, Collection[str]]:
        known = {i: m.since for i, m in members.items() if m.since >= 0}
        return {min(known or dict.fromkeys(members, 0), key=lambda i: (known.get(i, 0), i)): names}

    crew = make_crew(policy=oldest)
    first = crew.join()
    crew.settled(12)
    crew.join()
    crew.settled(0, 12)
    crew.join()
    crew.settled(0, 0, 12)
    assert len(first.owned()) == 12
    second = crew.members[1]
    crew.leave(first)
    crew.settled(0, 12)
    assert len(second.owned()) == 12


@pytest.mark.parametrize(
    "plan",
    [{"x": ["r0"]}, {}, {"x": "r0"}, None],
    ids=["stranger", "nothing", "letters", "raises"],
)
def test_a_policy_that_fails_is_replaced_by_the_balanced_plan(
    make_crew: MakeCrew, plan: dict[str, Collection[str]] | None, caplog: pytest.LogCaptureFixture
) -> None:
    def policy(
        members: Mapping[str, Sharer], names: Sequence[str]
    ) -> Mapping[str, Collection[str]]:
        if plan is None:
            raise ZeroDivisionError
        return plan

    crew = make_crew(policy=policy)
    crew.join()
    crew.settled(12 if plan != {} else 0)
    assert ("the policy failed" in caplog.text) == (plan != {})


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["a", "a"], "2 times"),
        ("abc", "expected a list of names or a dict of weights, got 'abc'"),
        (None, "expected a list of names or a dict of weights, got None"),
        ([""], "not empty"),
        ([7], "not empty"),
        ({"a": 1, "b": -1}, "expected a weight of 0 or more for 'b', got -1"),
    ],
)
def test_wrong_names_are_told_and_the_known_resources_are_shared_out(
    make_crew: MakeCrew, names: Any, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    crew = make_crew()
    crew.join()
    crew.settled(12)
    good, crew.names = crew.names, names
    crew.join()
    crew.until(lambda: word in caplog.text, "the leader says so")
    crew.settled(6, 6)
    crew.names = [*good, "new"]
    crew.members[0].resources_changed()
    crew.settled(6, 7)


def test_a_leader_that_got_wrong_names_asks_again_by_itself(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_groups, "RETRY_MS", 500)
    crew = make_crew()
    crew.join()
    crew.settled(12)
    good, crew.names = crew.names, [""]
    crew.join()
    crew.settled(6, 6)
    crew.names = [*good, "new"]
    crew.settled(6, 7)


def test_a_callback_that_raises_changes_nothing(
    make_crew: MakeCrew, caplog: pytest.LogCaptureFixture
) -> None:
    crew = make_crew()

    def fail(_names: frozenset[str]) -> None:
        raise ZeroDivisionError

    crew.join(on_revoked=fail, on_acquired=fail)
    crew.settled(12)
    crew.join()
    crew.settled(6, 6)
    assert caplog.text.count("ZeroDivisionError") >= 2


def test_heartbeats_go_on_while_a_callback_works(make_crew: MakeCrew) -> None:
    crew = make_crew()
    release = threading.Event()
    slow = crew.join(on_revoked=lambda _names: release.wait(20))
    crew.settled(12)
    crew.join()
    crew.until(lambda: slow.snapshot().revoking, "the revocation is under way")
    confirmed = slow.snapshot().confirmations
    crew.until(lambda: slow.snapshot().confirmations > confirmed + 10, "heartbeats go on")
    assert len(slow.snapshot().revoking) == 6
    assert crew.members[1].owned() == frozenset()
    release.set()
    crew.settled(6, 6)


def test_leaving_revokes_what_is_owned(make_crew: MakeCrew) -> None:
    crew = make_crew()
    told: list[frozenset[str]] = []
    member = crew.join(on_revoked=told.append)
    crew.settled(12)
    crew.leave(member)
    assert told == [frozenset(crew.names)]


def test_wrong_arguments_are_refused() -> None:
    given = {"bootstrap_servers": "h:1", "group_id": str(uuid.uuid4())}
    with pytest.raises(TypeError, match="resources"):
        ResourceGroup(given, resources=["a"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown"):
        ResourceGroup(given, resources=list, nonsense=1)


def test_a_consumer_is_refused_by_a_group_of_resources(make_crew: MakeCrew) -> None:
    crew = make_crew()
    crew.join()
    crew.settled(12)
    with (
        GroupMembership(["t"], crew.settings) as stranger,
        pytest.raises(RequestFailed, match="INCONSISTENT_GROUP_PROTOCOL"),
    ):
        crew.until(lambda: stranger.snapshot().owned, "an error")
    crew.settled(12)


def test_resources_of_a_lost_membership_are_lost(make_crew: MakeCrew) -> None:
    crew = make_crew()
    lost: list[frozenset[str]] = []
    first = crew.join(on_revoked=lost.append)
    crew.settled(12)
    crew.join()
    crew.settled(6, 6)
    mine = first.owned()
    lost.clear()  # without the resources that went to the second member
    expel(crew.settings["bootstrap.servers"], crew.settings["group.id"], first.snapshot().member)
    crew.until(lambda: lost == [mine], "the loss is told")
    crew.settled(6, 6)


def test_a_member_with_damaged_bytes_gets_nothing(make_crew: MakeCrew) -> None:
    crew = make_crew()
    crew.join()
    crew.settled(12)
    sound = resource_protocol(ResourceAssigner(list))
    name = ProtocolName("cooperative-sticky")
    damaged = replace(
        sound, embedded=replace(sound.embedded, offer=lambda _: (JoinProtocol(name, b"\x7f"),))
    )
    member = Membership([EVERY], parse_client_settings(crew.settings), damaged)
    with member:
        crew.until(lambda: member.snapshot().assignments > 0, "the damaged member has an answer")
        assert member.snapshot().owned == frozenset()
        crew.settled(12)
