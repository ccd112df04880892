"""The tables of ``kafka-consumer-groups``: those of a real Kafka 4.3, and older layouts."""

from __future__ import annotations

import pytest

from kohort.explain.events import Kind
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.reading import LogReader

OFFSETS = """
GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID
g  t  0  5  9  4  pod-2-8aee  /127.0.0.1  two
g  t  1  -  0  -  -  -  -
"""
MEMBERS = """
GROUP  CONSUMER-ID  GROUP-INSTANCE-ID HOST  CLIENT-ID  #PARTITIONS
g  pod-2-8aee  pod-2  /127.0.0.1  two  1
g  one-b18e  /127.0.0.1  one  0
"""
STATE = """
GROUP  COORDINATOR (ID)  ASSIGNMENT-STRATEGY  STATE  #MEMBERS
g  127.0.0.1:16991  (1)  cooperative-sticky  PreparingRebalance  2
"""
OLD = """
TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID
t  0  5  9  4  -  -  -
"""


def explain(*tables: str) -> tuple[LogReader, Explained]:
    reader = LogReader("told.txt")
    lines = "\n".join(tables).splitlines()
    events = [event for number, text in enumerate(lines, 1) for event in reader.read(number, text)]
    (found,) = Explainer().feed_all([*events, *reader.rest()]).finish()
    return reader, found


def says(found: Explained) -> dict[str, str]:
    return {finding.name: finding.says for finding in found.findings}


def test_members_and_partitions_are_read_from_all_three_tables() -> None:
    reader, found = explain(OFFSETS, MEMBERS, STATE)
    listing = found.story.listing
    assert found.story.group == "g"
    assert listing.members == {"pod-2-8aee", "one-b18e"}
    assert listing.idle == {"one-b18e"}
    assert (listing.partitions, listing.alone, listing.lag) == ({"t-0", "t-1"}, {"t-1"}, {"t-0": 4})
    assert listing.states == ["PreparingRebalance"]
    member = found.story.examples[Kind.LISTED_MEMBER][0]
    assert (member.instance, member.client) == ("pod-2", "two")
    assert reader.counts.unknown == 0
    told = says(found)
    assert told["partitions without a consumer"].startswith("1 of 2 partitions had no consumer")
    assert told["more members than partitions"] == "1 member of the group had no partition."
    assert "PreparingRebalance" in told["rebalance under way"]


def test_a_group_without_members_is_told_also_from_an_old_table() -> None:
    assert "4 records wait" in says(explain(OLD)[1])["no active members"]
    words = "Consumer group 'g' has no active members."
    assert "no active members" in says(explain(words)[1])


def test_a_line_behind_a_table_ends_it() -> None:
    reader, found = explain(OFFSETS, "[2026-01-01 00:00:00,000] INFO nothing of that kind", OFFSETS)
    assert found.story.counts[Kind.LISTED_PARTITION] == 4
    assert reader.counts.others == 4


VERBOSE = """
GROUP  TOPIC  PARTITION  LEADER-EPOCH  CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
g  t  0  0  5  9  4  pod-2-8aee  /127.0.0.1  two
"""
OWNERS = """
GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  OWNER
g  t  0  5  9  4  consumer-1_/127.0.0.1
"""
COMMAS = """
GROUP, TOPIC, PARTITION, CURRENT OFFSET, LOG END OFFSET, LAG, OWNER
g, t, 0, 5, 9, 4, consumer-1_/127.0.0.1
g, t, 1, unknown, 9, unknown, none
"""


@pytest.mark.parametrize(("table", "partitions"), [(VERBOSE, 1), (OWNERS, 1), (COMMAS, 2)])
def test_tables_of_kafka_0_9_to_4_are_read(table: str, partitions: int) -> None:
    _, found = explain(table)
    told = f"The group was listed with 1 members, {partitions} partitions, 4 records of lag."
    assert says(found)["listed"] == told
    assert ("partitions without a consumer" in says(found)) is (partitions == 2)


def test_a_group_of_the_formatter_before_kafka_3_8_has_its_members_and_its_state() -> None:
    member = (
        "MemberMetadata(memberId=c-{0}, groupInstanceId=None, clientId=c, clientHost=/10.0.0.1)"
    )
    members = ", ".join(f"c-{n} -> {member.format(n)}" for n in (1, 2))
    reader, found = explain(
        "g::GroupMetadata(groupId=g, generation=4, protocolType=Some(consumer), "
        f"currentState=Stable, members=Map({members}))"
    )
    assert reader.counts.unknown == 0
    assert found.story.group == "g"
    assert found.story.generations == (4, 4)
    assert says(found) == {"listed": "The group was listed in the state Stable with 2 members."}
