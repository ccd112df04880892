"""``kohort groups`` changes offsets, members and groups: a dry run first, then with --execute."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner
from tests.cli.commands import Kohort, rows
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.groups.resets import duration_ms, plans_of, timestamp_of
from kohort.cli.main import cli
from kohort.client.admin import Admin
from kohort.client.errors import RequestFailed
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

HOUR_MS = 3_600_000
DRY = "Dry run: nothing was changed. Add --execute to do it.\n"
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def admin(kohort_broker: EmbeddedBroker) -> Iterator[Admin]:
    """Topic t has ten records an hour apart in partition 0; group g committed t-0 and u-0."""
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as made:
        made.create_topic("t", 2)
        made.create_topic("u", 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
        begin = int(time.time() * 1_000) - 10 * HOUR_MS
        for number in range(10):
            producer.produce("t", b"v", partition=0, timestamp=begin + number * HOUR_MS)
        producer.produce("u", b"v", partition=0)
        assert producer.flush(10) == 0
        made.alter_offsets("g", {T0: Position(5), U0: Position(0)})
        yield made


def committed(admin: Admin, group: str = "g") -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in admin.committed(group).items()}


def new_offsets(kohort: Kohort, *words: str) -> dict[str, int]:
    """The new offsets that a dry run shows."""
    head, *table = rows(kohort("groups", "reset-offsets", "g", *words))
    assert head == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    return {f"{topic}-{partition}": int(offset) for _, topic, partition, offset in table}


def test_a_reset_is_shown_first_and_done_with_execute(kohort: Kohort, admin: Admin) -> None:
    reset = ("groups", "reset-offsets", "--group", "g", "--topic", "t", "--to-earliest")
    assert kohort(*reset).splitlines() == [
        "GROUP  TOPIC  PARTITION  NEW-OFFSET",
        "g      t      0          0",
        "g      t      1          0",
    ]
    assert kohort.errors == DRY
    assert committed(admin) == {T0: 5, U0: 0}
    kohort(*reset, "--dry-run")
    assert kohort.errors == ""
    assert json.loads(kohort(*reset, "--execute", "--json")) == {
        "executed": True,
        "offsets": [
            {"group": "g", "topic": "t", "partition": 0, "current_offset": 5, "new_offset": 0},
            {"group": "g", "topic": "t", "partition": 1, "current_offset": None, "new_offset": 0},
        ],
        "errors": [],
    }
    assert committed(admin) == {T0: 0, T1: 0, U0: 0}


def test_every_scenario_of_kafkas_tool(kohort: Kohort, admin: Admin) -> None:
    assert new_offsets(kohort, "--topic", "t", "--to-latest") == {"t-0": 10, "t-1": 0}
    assert new_offsets(kohort, "--topic", "t", "--to-current") == {"t-0": 5, "t-1": 0}
    assert new_offsets(kohort, "--all-topics", "--to-offset", "7") == {"t-0": 7, "u-0": 1}
    assert "New offset (7) is higher than latest offset for topic partition u-0" in kohort.errors
    assert new_offsets(kohort, "--topic", "t:0", "--shift-by", "-2") == {"t-0": 3}
    assert new_offsets(kohort, "--topic", "t:0", "--shift-by", "-9") == {"t-0": 0}
    assert "is lower than earliest offset" in kohort.errors
    assert new_offsets(kohort, "--topic", "t", "--by-duration", "PT2H30M") == {"t-0": 8, "t-1": 0}
    assert "Warn: Partition 1 from topic t is empty. Falling back" in kohort.errors
    before = datetime.fromtimestamp(time.time() - 4.5 * HOUR_MS / 1_000, UTC)
    when = before.replace(tzinfo=None).isoformat(timespec="milliseconds")
    assert new_offsets(kohort, "--topic", "t:0", "--to-datetime", when) == {"t-0": 6}


def test_an_exported_plan_is_read_again(kohort: Kohort, admin: Admin, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(
        kohort("groups", "reset-offsets", "g", "--all-topics", "--to-latest", "--export")
    )
    assert plan.read_text() == "t,0,10\nu,0,1\n"
    assert kohort.errors == ""  # nobody meant to change anything
    assert new_offsets(kohort, "--from-file", str(plan)) == {"t-0": 10, "u-0": 1}
    both = ("groups", "reset-offsets", "g", "h", "--topic", "t:0")
    plan.write_text(kohort(*both, "--to-offset", "3", "--export"))
    assert plan.read_text() == "g,t,0,3\nh,t,0,3\n"
    shown = kohort(
        *("groups", "reset-offsets", "g", "i", "--from-file", str(plan), "--execute"), status=1
    )
    assert rows(shown)[1:] == [["g", "t", "0", "3"]]
    assert kohort.errors == "Error: No reset plan for group i found\n"
    assert committed(admin) == {T0: 3, U0: 0}


def test_a_group_with_members_is_not_reset(
    kohort: Kohort, admin: Admin, kohort_broker: EmbeddedBroker
) -> None:
    settings = {"bootstrap.servers": kohort_broker.bootstrap_servers, "group.id": "g"}
    with GroupMembership(["t"], settings) as member:
        until(lambda: len(member.snapshot().owned) == 2, "the member owns the topic")
        words = ("--topic", "t:0", "--to-earliest", "--execute")
        shown = kohort("groups", "reset-offsets", "g", "new", *words, status=1)
        assert rows(shown)[1:] == [["new", "t", "0", "0"]]
        assert kohort.errors == (
            "Error: Assignments can only be reset if the group 'g' is inactive, but the current "
            "state is Stable. Stop its members; `kohort groups members g` shows them.\n"
        )
        # The coordinator refuses it, too: a member may have joined after the question.
        assert admin.alter_offsets("g", {T0: Position(0)}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert committed(admin)[T0] == 5
        assert committed(admin, "new") == {T0: 0}


def test_a_plan_that_cannot_be_made_changes_nothing(kohort: Kohort, admin: Admin) -> None:
    admin.alter_offsets("other", {T1: Position(0)})
    words = ("groups", "reset-offsets", "g", "other", "--topic", "t:0", "--shift-by", "1")
    assert kohort(*words, "--execute", error=ConfigError).startswith(
        "Cannot shift offset for partition t-0 since there is no current committed offset"
    )
    assert committed(admin)[T0] == 5
    assert "t has 2, from 0 on" in kohort(
        *("groups", "reset-offsets", "g", "--topic", "t:0,7", "--to-latest"), error=ConfigError
    )
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in kohort(
        *("groups", "reset-offsets", "g", "--topic", "nope", "--to-latest"), error=RequestFailed
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--topic", "t"], "expected one of --to-earliest, "),
        (["--topic", "t", "--to-latest", "--to-offset", "0"], "found --to-latest, --to-offset"),
        (["--to-latest"], "One of the reset scopes should be defined: --all-topics, --topic."),
        (["--to-latest", "--topic", "t", "--execute", "--dry-run"], "exclude each other"),
        (["--to-latest", "--topic", "t", "--all-groups"], "expected names of groups, or"),
    ],
)
def test_wrong_combinations_are_refused_with_status_2(words: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, ["groups", "reset-offsets", "g", *words])
    assert result.exit_code == 2
    assert told in result.stderr


def test_times_durations_and_plans_have_kafkas_forms(tmp_path: Path) -> None:
    assert timestamp_of("1970-01-01T00:00:01.500") == 1_500
    assert timestamp_of("1970-01-01T02:00:00.000+02:00") == 0
    assert timestamp_of("1970-01-01T00:00:00Z") == 0
    assert duration_ms("P1DT2H3M4.5S") == 93_784_500
    assert duration_ms("-PT1M") == -60_000
    for text in ("1970-01-01", "noon", "1970-01-01T99"):
        with pytest.raises(ConfigError, match=r"--to-datetime is .* expected YYYY-MM-DDThh"):
            timestamp_of(text)
    for text in ("P", "PT", "P1DT", "5", "PT5", "P1Y", ""):
        with pytest.raises(ConfigError, match=r"--by-duration is .* expected PnDTnHnMnS"):
            duration_ms(text)
    path = tmp_path / "plan"
    for line in ("t,0", "t,0,x", "t;0;1", "a,b,t,0,1"):
        path.write_text(f"t,0,1\n{line}\n")
        with pytest.raises(ConfigError, match=r"line 2: .* expected TOPIC,PARTITION,OFFSET or"):
            plans_of(path)
    path.write_text('"t, with commas",0,1\ng,t,2,3\n')
    assert plans_of(path) == {
        None: {TopicPartition("t, with commas", 0): 1},
        "g": {TopicPartition("t", 2): 3},
    }


def test_groups_are_deleted_unless_they_have_members(
    kohort: Kohort, admin: Admin, kohort_broker: EmbeddedBroker
) -> None:
    settings = {"bootstrap.servers": kohort_broker.bootstrap_servers, "group.id": "busy"}
    with GroupMembership(["t"], settings) as member:
        until(lambda: len(member.snapshot().owned) == 2, "the member owns the topic")
        delete = ("groups", "delete", "g", "busy", "nobody")
        assert kohort(*delete, status=1) == "These consumer groups would be deleted: 'g'\n"
        refusals = (
            "* Group 'busy' could not be deleted due to: NON_EMPTY_GROUP (68): The group is not "
            "empty: stop its members first.\n"
            "* Group 'nobody' could not be deleted due to: GROUP_ID_NOT_FOUND (69): The group id "
            "does not exist: `kohort groups list` shows all.\n"
        )
        dry = DRY.replace("do it", "do the allowed part")
        assert (
            kohort.errors == f"Error: Deletion of some consumer groups would fail:\n{refusals}{dry}"
        )
        assert admin.describe_group("g").state == "Empty"
        told = kohort(*delete, "--execute", status=1)
        assert told == "These consumer groups were deleted successfully: 'g'\n"
        assert kohort.errors == f"Error: Deletion of some consumer groups failed:\n{refusals}"
    assert admin.describe_group("g").state == "Dead"
    told = kohort("groups", "delete", "--group", "busy", "--execute")
    assert told == "Deletion of requested consumer groups ('busy') was successful.\n"
    assert json.loads(kohort("groups", "delete", "busy", "--execute", "--json", status=1)) == {
        "executed": True,
        "deleted": [],
        "refused": {
            "busy": "GROUP_ID_NOT_FOUND (69): The group id does not exist: `kohort groups list` "
            "shows all."
        },
    }


def test_offsets_are_deleted_unless_a_member_reads_the_topic(
    kohort: Kohort, admin: Admin, kohort_broker: EmbeddedBroker
) -> None:
    settings = {"bootstrap.servers": kohort_broker.bootstrap_servers, "group.id": "g"}
    with GroupMembership(["u"], settings) as member:
        until(lambda: len(member.snapshot().owned) == 1, "the member owns the topic")
        delete = ("groups", "delete-offsets", "g", "--topic", "t:0", "--topic", "u")
        dry, done = kohort(*delete, status=1), kohort(*delete, "--execute", status=1)
        for shown, word in ((dry, "Planned"), (done, "Successful")):
            head, first, second = rows(shown)
            assert (head, first) == (["TOPIC", "PARTITION", "STATUS"], ["t", "0", word])
            assert second[:4] == ["u", "0", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC"]
        assert committed(admin) == {U0: 0}
    told = kohort("groups", "delete-offsets", "g", "--topic", "u", "--execute")
    assert told.startswith("Request succeeded for deleting offsets from group g.\n\nTOPIC")
    assert committed(admin) == {}
    (report,) = json.loads(
        kohort("groups", "delete-offsets", "nobody", "--topic", "u", "--json", status=1)
    )
    assert report["partitions"][0]["error"] == "GROUP_ID_NOT_FOUND"


def test_members_are_removed(kohort: Kohort, admin: Admin, kohort_broker: EmbeddedBroker) -> None:
    settings = {
        "bootstrap.servers": kohort_broker.bootstrap_servers,
        "group.id": "g",
        "group.instance.id": "pod-1",
        "session.timeout.ms": 60_000,
    }
    # Static members stay in the group when they close.
    with GroupMembership(["t"], settings) as member:
        until(lambda: len(member.snapshot().owned) == 2, "the member owns the topic")
    (left,) = admin.describe_group("g").members
    remove = ("groups", "remove-members", "g", "--instance-id", "pod-1")
    (head, row) = rows(kohort(*remove))
    assert head == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "STATUS"]
    assert row == ["g", left.member_id, "pod-1", left.client_host, left.client_id, "Planned"]
    assert admin.describe_group("g").members
    (told,) = json.loads(kohort(*remove, "--execute", "--json"))
    assert (told["group_instance_id"], told["error"]) == ("pod-1", None)
    assert admin.describe_group("g").state == "Empty"
    assert "no member pod-1" in kohort(*remove, "--execute", error=ConfigError)
    assert "'nobody' does not exist" in kohort(
        "groups", "remove-members", "nobody", "--all-members", error=ConfigError
    )
    assert admin.remove_members("g", [left]) == [ErrorCode.UNKNOWN_MEMBER_ID]
