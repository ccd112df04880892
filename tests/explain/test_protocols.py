"""Patterns of protocols and programs that do not fit together in one group."""

from __future__ import annotations

from dataclasses import replace

from tests.explain.test_metering import settled
from tests.explain.test_settings import told
from tests.explain.test_stories import done, expires, explain, joins, line, member, names

from kohort.explain.causes import Cause
from kohort.explain.explaining import Explainer

CONTEXT = "[Consumer clientId=consumer-g-1, groupId=g] "
RDKAFKA = "%4|1772366400.000|X|rdkafka#consumer-1| [thrd:main]: "
CHOSEN = "WARN KafkaSourceProvider: Kafka option 'kafka.group.id' has been set on this query, it is"


def leaves_with(at: float, who: str, *assignors: str) -> str:
    """A member leaves a broker of Kafka 3.2 to 3.8, which tells its assignors."""
    return line(
        at,
        f"Member MemberMetadata(memberId={who}, groupInstanceId=None, clientId=c, clientHost=/h, "
        "sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List("
        f"{', '.join(assignors)})) has left group g through explicit `LeaveGroup`; client "
        "reason: x",
    )


def test_members_with_eager_and_with_cooperative_assignors_are_told() -> None:
    both = leaves_with(0, "m-1", "range", "cooperative-sticky")
    alone = leaves_with(9, "m-2", "cooperative-sticky")
    said = told(explain([both, alone]), "eager and cooperative mixed")
    assert said.startswith("Member m-2 has cooperative-sticky alone, and member m-1 has ")
    assert "cooperative-sticky, range:" in said
    assert names(explain([both, leaves_with(9, "m-3", "range")])) == ["member left"]
    assert names(explain([alone])) == ["member left"]


def test_an_assignor_that_changes_back_is_no_upgrade() -> None:
    def protocols(*chosen: str) -> list[str]:
        records = [
            replace(settled(number, 10.0 * number, a=[0]), protocol=each)
            for number, each in enumerate(chosen, 1)
        ]
        (found,) = Explainer().feed_all(records).finish()
        return names(found)

    mixed, back = "eager and cooperative mixed", ("range", "cooperative-sticky", "range")
    assert mixed in protocols("range", *back)
    assert mixed not in protocols("range", "range", "cooperative-sticky", "cooperative-sticky")


def test_a_commit_that_meets_a_cooperative_rebalance_of_librdkafka() -> None:
    name = "commits in cooperative rebalances"
    refused = (
        f"{RDKAFKA}Offset commit (manual) failed for 1/2 partition(s) in join-state "
        "wait-incr-unassign-to-complete: Broker: Specified group generation id is not valid: t[1]"
    )
    lost = f'{RDKAFKA}Group "g": current assignment of 2 partition(s) lost: illegal generation'
    (found,) = [each for each in explain([refused, lost]).findings if each.name == name]
    assert "it did so here" in found.says
    assert found.known == "measured"
    eager = refused.replace("wait-incr-unassign-to-complete", "wait-unassign-to-complete")
    assert name not in names(explain([eager, lost]))


def test_two_queries_of_spark_with_one_group_id() -> None:
    name = "one group id on several Spark queries"
    joining = f"26/03/01 12:00:01 INFO AbstractCoordinator: {CONTEXT}(Re-)joining group"
    one = [f"26/03/01 12:00:00 {CHOSEN}", joining]
    assert name not in names(explain(one))
    assert told(explain([*one, *one]), name).startswith("2 queries of Spark set kafka.group.id")
    others = f"26/03/01 12:00:02 INFO AbstractCoordinator: {CONTEXT}Request joining group due to: "
    said = told(explain([*one, f"{others}group is already rebalancing"]), name)
    assert "the group has other members" in said


def test_a_stream_of_spark_tells_the_partitions_that_another_one_took() -> None:
    found = explain(
        [
            "java.lang.IllegalStateException: Previously tracked partitions [t-1,t-3] been revoked "
            "by Kafka because of consumer rebalance. This is mostly due to another stream with "
            "same group id joined, please check.",
        ]
    )
    assert "lost [t-1,t-3] to another stream" in told(
        found, "one group id on several Spark queries"
    )


def test_a_static_member_that_is_back_after_its_session_has_a_session_that_is_too_short() -> None:
    restart = [
        *expires(0, 4, member("web-0", 1)),
        *done(1, 5),
        joins(40, 5, member("web-0", 2), instance="web-0"),
        *done(41, 6),
    ]
    name = "session shorter than a restart"
    said = told(explain(restart), name)
    assert said.startswith("Member 'web-0' has a group.instance.id, yet its session ended before")
    assert "40.0 s later" in said
    dynamic = [text.replace("instance id web-0", "instance id null") for text in restart]
    assert name not in names(explain(dynamic))


def test_a_static_member_that_is_back_at_once_is_told_once() -> None:
    lines = [
        *expires(0, 4, member("web-0", 1)),
        joins(2, 5, member("web-0", 2), instance="web-0"),
        *done(3, 6),
    ]
    found = explain(lines)
    assert "session shorter than a restart" in names(found)
    assert "session shorter than pauses" not in names(found)
    assert [row.cause for row in found.story.rebalances] == [Cause.EXPIRED, Cause.NEW_MEMBER]
