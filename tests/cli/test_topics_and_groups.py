"""``kohort topics`` and ``kohort groups`` against a broker, as tables and as JSON."""

import json
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from click.testing import CliRunner
from tests.cli.commands import Kohort, rows
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.groups.reports import Report, assignment_text, warn
from kohort.cli.main import cli
from kohort.client.descriptions import GroupDescription, GroupMemberDescription
from kohort.client.errors import BrokerUnreachable, RequestFailed
from kohort.client.membership import GroupMembership
from kohort.embedded.connect import COMPATIBLE, ConnectAssignment, encode_worker_assignment
from kohort.embedded.consumer import Assignment, encode_assignment
from kohort.embedded.deferral import Pending, Wait, encode_pending
from kohort.model.errors import ConfigError
from kohort.model.ids import GenerationId, TopicPartition
from kohort.model.instants import Millis

PATIENCE_S = 20


def test_topics_are_created_listed_described_and_deleted(kohort: Kohort) -> None:
    assert kohort("topics", "create", "b", "--partitions", "2") == "Created topic b.\n"
    made = kohort("topics", "create", "a", "--config", "retention.ms=5", "--json")
    assert json.loads(made) == {"topic": "a", "created": True}
    assert kohort("topics", "list") == "a\nb\n"
    assert rows(kohort("topics", "describe", "b")) == [
        ["TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR", "ERROR"],
        ["b", "0", "1", "0", "1", "1", "-"],
        ["b", "1", "1", "0", "1", "1", "-"],
    ]
    described = json.loads(kohort("topics", "describe", "--json"))
    assert [(row["topic"], row["partition_count"]) for row in described] == [("a", 1), ("b", 2)]
    assert described[1]["partitions"][1]["leader"] == 1
    assert kohort("topics", "delete", "a", "b") == "Deleted topic a.\nDeleted topic b.\n"
    assert json.loads(kohort("topics", "list", "--json")) == []


def test_settings_are_shown_and_changed(kohort: Kohort) -> None:
    kohort("topics", "create", "t", "--config", "retention.ms=5")
    shown = {cells[0]: cells[1:] for cells in rows(kohort("topics", "config", "t"))}
    assert shown["SETTING"] == ["VALUE", "SOURCE"]
    assert shown["retention.ms"] == ["5", "topic"]
    assert shown["segment.bytes"] == ["1073741824", "default"]
    told = kohort(
        *("topics", "config", "t", "--set", "max.message.bytes=77", "--unset", "retention.ms"),
        "--json",
    )
    changed = json.loads(told)
    assert changed["max.message.bytes"] == {"value": "77", "source": "topic"}
    assert changed["retention.ms"]["source"] == "default"
    wrong = kohort("topics", "config", "t", "--set", "nonsense=1", error=RequestFailed)
    assert "nonsense" in wrong
    assert "topic nope" in kohort("topics", "config", "nope", error=RequestFailed)


def test_records_are_deleted(kohort: Kohort, kohort_broker: EmbeddedBroker) -> None:
    kohort("topics", "create", "t", "--partitions", "2")
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    for number in (0, 0, 0, 1):
        producer.produce("t", b"v", partition=number)
    assert producer.flush(10) == 0
    assert rows(kohort("topics", "delete-records", "t", "--before", "1")) == [
        ["PARTITION", "FIRST-OFFSET"],
        ["0", "1"],
        ["1", "1"],
    ]
    end = ("topics", "delete-records", "t", "--before", "end", "--partition", "0", "--json")
    assert json.loads(kohort(*end)) == [{"partition": 0, "first_offset": 3}]
    assert "OFFSET_OUT_OF_RANGE" in kohort(
        *("topics", "delete-records", "t", "--before", "9"), error=RequestFailed
    )


def test_errors_name_the_topic_and_the_code(kohort: Kohort) -> None:
    kohort("topics", "create", "t")
    again = kohort("topics", "create", "t", error=RequestFailed)
    assert "topic t" in again
    assert "TOPIC_ALREADY_EXISTS" in again
    assert kohort("topics", "create", "t", "--if-not-exists") == ""
    for what in ("describe", "delete", "config"):
        assert kohort("topics", what, "nope", error=RequestFailed) == (
            "topic nope: the broker answered UNKNOWN_TOPIC_OR_PARTITION (3): "
            "`kohort topics list` shows all topics"
        )
    assert kohort("topics", "delete", "nope", "--if-exists") == ""
    assert "expected name=value" in kohort(
        "topics", "create", "u", "--config", "x", error=ConfigError
    )


@pytest.mark.slow
def test_an_unreachable_broker_is_reported() -> None:
    result = CliRunner().invoke(cli, ["topics", "list", "--bootstrap-server", "127.0.0.1:1"])
    assert isinstance(result.exception, BrokerUnreachable)
    assert "127.0.0.1:1" in str(result.exception)


@pytest.fixture
def member(kohort_broker: EmbeddedBroker, kohort: Kohort) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that has read three of five records and committed."""
    kohort("topics", "create", "t", "--partitions", "2")
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    for _ in range(5):
        producer.produce("t", b"v", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kohort_broker.bootstrap_servers,
            "group.id": "g",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    seen: list[confluent_kafka.Message] = []
    until(
        lambda: len(seen) >= 3,
        "three records",
        PATIENCE_S,
        between=lambda: seen.extend(consumer.consume(3 - len(seen), 0.2)),
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 1, 3)], asynchronous=False)
    yield consumer
    consumer.close()


def test_groups_are_listed_and_described(kohort: Kohort, member: confluent_kafka.Consumer) -> None:
    assert kohort("groups", "list") == "g\n"
    assert rows(kohort("groups", "list", "--state", "--type")) == [
        ["GROUP", "TYPE", "STATE"],
        ["g", "Classic", "Stable"],
    ]
    assert rows(kohort("groups", "list", "--state")) == [["GROUP", "STATE"], ["g", "Stable"]]
    assert rows(kohort("groups", "list", "--state", "empty,dead")) == [["GROUP", "STATE"]]
    assert json.loads(kohort("groups", "list", "--type", "classic", "--json"))[0]["group"] == "g"
    wrong = CliRunner().invoke(cli, ["groups", "list", "--state", "Sleepy"])
    assert wrong.exit_code == 2
    assert "sleepy: expected some of Empty, " in wrong.stderr
    text = kohort("groups", "describe", "g")
    head, _, below = text.strip().partition("\n\n")
    assert dict(rows(head)) == {
        "GROUP": "g",
        "COORDINATOR-NODE": "1",
        "STATE": "Stable",
        "BALANCER": "range",
        "MEMBERS": "1",
        "TOTAL-LAG": "2",
    }
    columns, first, second = rows(below)
    assert columns == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert first[:6] == ["g", "t", "0", "-", "0", "-"]
    assert second[:6] == ["g", "t", "1", "3", "5", "2"]
    assert second[6].startswith("reader-")
    assert second[7:] == ["/127.0.0.1", "reader"]


def test_describe_shows_members_and_state(kohort: Kohort, member: confluent_kafka.Consumer) -> None:
    columns, row = rows(kohort("groups", "describe", "g", "--members", "--verbose"))
    assert columns == [
        *("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
        *("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"),
    ]
    assert row[4:] == ["2", "-", "t:0,1", "-", "-"]
    assert rows(kohort("groups", "members", "g"))[0] == columns[:5]
    (offsets,) = json.loads(kohort("groups", "offsets", "--group", "g", "--json"))
    assert [row["lag"] for row in offsets["partitions"]] == [None, 2]
    verbose = rows(kohort("groups", "offsets", "--all-groups", "--verbose"))
    assert verbose[0][2:4] == ["PARTITION", "LEADER-EPOCH"]
    assert [row[:6] for row in verbose[1:]] == [
        ["g", "t", "0", "-", "-", "0"],
        ["g", "t", "1", "-", "3", "5"],
    ]
    state = kohort("groups", "describe", "g", "--state").splitlines()
    assert state == kohort("groups", "state", "g").splitlines()
    assert state[0].startswith("GROUP  COORDINATOR (ID)")
    assert state[1].split()[0] == "g"
    assert state[1].split()[2:] == ["(1)", "range", "Stable", "1"]
    report = json.loads(kohort("groups", "describe", "g", "--json"))[0]
    assert (report["state"], report["total_lag"]) == ("Stable", 2)
    assert report["members"][0]["partitions"] == ["t-0", "t-1"]
    assert report["partitions"][1]["lag"] == 2


def test_empty_and_unknown_groups_are_reported(
    kohort: Kohort, member: confluent_kafka.Consumer
) -> None:
    member.close()
    kohort("groups", "describe", "g")
    assert "Consumer group 'g' has no active members." in kohort.errors
    told = kohort("groups", "describe", "nobody", error=ConfigError)
    assert told == "Consumer group 'nobody' does not exist."
    assert (
        CliRunner().invoke(cli, ["groups", "describe", "g", "--members", "--state"]).exit_code == 2
    )


def test_assignments_have_the_form_of_kafkas_tool() -> None:
    partitions = [TopicPartition("b", 3), TopicPartition("a", 1), TopicPartition("a", 0)]
    assert assignment_text(partitions) == "a:0,1;b:3"


@pytest.mark.slow
def test_the_total_lag_is_unknown_while_a_part_of_it_is_unknown(
    kohort: Kohort, kohort_broker: EmbeddedBroker, member: confluent_kafka.Consumer
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    producer.produce("t", b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    head = kohort("groups", "describe", "g").strip().partition("\n\n")[0]
    assert dict(rows(head))["TOTAL-LAG"] == "-"
    assert json.loads(kohort("groups", "describe", "g", "--json"))[0]["total_lag"] is None


def test_describe_shows_the_partitions_that_wait_for_a_lost_member(
    kohort_broker: EmbeddedBroker, kohort: Kohort
) -> None:
    kohort("topics", "create", "t", "--partitions", "4")
    settings = {
        "bootstrap.servers": kohort_broker.bootstrap_servers,
        "group.id": "g",
        "heartbeat.interval.ms": 100,
        "scheduled.rebalance.max.delay.ms": 60_000,
    }
    with GroupMembership(["t"], settings) as first:
        until(lambda: len(first.snapshot().owned) == 4, "everything is the first member's")
        with GroupMembership(["t"], settings) as second:

            def shared() -> bool:
                first.release(first.snapshot().revoking)
                return len(second.snapshot().owned) == 2

            until(shared, "half is the second member's")
            lost, gone = sorted(second.snapshot().owned), second.snapshot().member
        until(lambda: bool(first.waits()), "the leader waits")
        kohort("groups", "describe", "g")
        expected = (
            f"Consumer group 'g' keeps {assignment_text(lost)} for member {gone}, which left, for "
            "60 s from the last rebalance at most."
        )
        assert expected in kohort.errors
        (report,) = json.loads(kohort("groups", "describe", "g", "--json"))
        assert report["waits"] == [
            {
                "partitions": [str(partition) for partition in lost],
                "member_id": gone,
                "remaining_ms_at_the_last_rebalance": 60_000,
            }
        ]


def test_describe_shows_the_partitions_that_a_member_prepares(
    kohort_broker: EmbeddedBroker, kohort: Kohort
) -> None:
    kohort("topics", "create", "t", "--partitions", "4")
    settings = {
        "bootstrap.servers": kohort_broker.bootstrap_servers,
        "group.id": "g",
        "heartbeat.interval.ms": 100,
        "kohort.stateful.topics": "t",
        "kohort.handover.timeout.ms": 90_000,
    }
    with GroupMembership(["t"], settings) as first:
        until(lambda: len(first.snapshot().owned) == 4, "everything is the first member's")
        with GroupMembership(["t"], settings) as second:
            until(lambda: len(second.snapshot().preparing) == 2, "half is announced")
            seen = second.snapshot()
            kohort("groups", "describe", "g")
            coming = assignment_text(sorted(seen.preparing))
            expected = f"Member {seen.member} of consumer group 'g' prepares {coming}, for 90 s "
            assert expected in kohort.errors
            (report,) = json.loads(kohort("groups", "describe", "g", "--json"))
            assert report["handovers"] == [
                {
                    "member_id": seen.member,
                    "partitions": [str(partition) for partition in sorted(seen.preparing)],
                    "remaining_ms_at_the_last_rebalance": 90_000,
                }
            ]


def test_describe_shows_the_copies_that_a_member_keeps(
    kohort_broker: EmbeddedBroker, kohort: Kohort
) -> None:
    kohort("topics", "create", "t", "--partitions", "4")
    settings = {
        "bootstrap.servers": kohort_broker.bootstrap_servers,
        "group.id": "g",
        "heartbeat.interval.ms": 100,
        "kohort.stateful.topics": "t",
        "kohort.handover.timeout.ms": 1,
        "kohort.standby.replicas": 1,
    }
    with GroupMembership(["t"], settings) as first, GroupMembership(["t"], settings) as second:

        def shared() -> bool:
            for member in (first, second):  # The one that joined alone owned all partitions.
                member.release(member.snapshot().revoking)
            return len(first.snapshot().owned) == len(second.snapshot().owned) == 2

        until(shared, "each has a half")
        until(
            lambda: first.snapshot().preparing == second.snapshot().owned,
            "each keeps a copy of the other one's half",
        )
        kohort("groups", "describe", "g")
        copies = assignment_text(sorted(second.snapshot().owned))
        told = f"Member {first.snapshot().member} of consumer group 'g' keeps copies of {copies}."
        assert told in kohort.errors
        (report,) = json.loads(kohort("groups", "describe", "g", "--json"))
        kept = {member["consumer_id"]: member["standbys"] for member in report["members"]}
        assert kept[first.snapshot().member] == [str(tp) for tp in sorted(second.snapshot().owned)]


def as_of_a_worker(detail: bytes) -> bytes:
    return encode_worker_assignment(ConnectAssignment(detail=detail), COMPATIBLE)


@pytest.mark.parametrize(
    ("protocol", "wrap", "names"),
    [
        ("kohort-resources", bytes, "s3:1, s3:2"),
        ("connect", as_of_a_worker, "s3-0, s3-1"),
    ],
)
def test_waits_of_groups_without_topics_are_shown_by_the_names_of_their_resources(
    protocol: str,
    wrap: Callable[[bytes], bytes],
    names: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    travelling = {
        "connect": [TopicPartition("s3", 1), TopicPartition("s3", 2)],
        "kohort-resources": [TopicPartition("s3:1", 0), TopicPartition("s3:2", 0)],
    }
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(4),
        remaining_ms=Millis(9_000),
        partitions=frozenset(travelling[protocol]),
        member="worker-7",
    )
    data = encode_assignment(
        Assignment(partitions=frozenset(), user_data=encode_pending(Pending(waits=(wait,))))
    )
    member = GroupMemberDescription(
        member_id="m", group_instance_id=None, client_id="", client_host="", assignment=wrap(data)
    )
    group = GroupDescription(
        group_id="g",
        state="Stable",
        protocol_type=protocol,
        protocol_name="",
        coordinator_id=1,
        members=(member,),
    )
    warn(group)
    told = f"Consumer group 'g' keeps {names} for member worker-7, which left, for 9 s from the"
    assert told in " ".join(capsys.readouterr().err.split())
    shown = json.loads(json.dumps(Report(group, "", []).as_json()))
    assert [wait["partitions"] for wait in shown["waits"]] == [names.split(", ")]
