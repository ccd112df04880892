"""Rebalances and patterns, from logs that are written here."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kohort.explain import explaining
from kohort.explain.amounts import Known
from kohort.explain.causes import Cause
from kohort.explain.events import Kind
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.reading import LogReader

UUID = "12345678-1234-1234-1234-12345678"


def member(client: str, number: int) -> str:
    return f"{client}-{UUID}{number:04}"


def line(at: float, message: str) -> str:
    minutes, seconds = divmod(at, 60)
    return (
        f"[2026-03-01 10:{int(minutes):02}:{int(seconds):02},{round(seconds % 1 * 1000):03}] INFO "
        f"[GroupCoordinator id=1 topic=__consumer_offsets partition=7] {message} "
        "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
    )


def preparing(at: float, generation: int, reason: str, group: str = "g") -> str:
    return line(
        at,
        f"Preparing to rebalance group {group} in state PreparingRebalance with old generation "
        f"{generation} (reason: {reason}).",
    )


def joins(at: float, generation: int, who: str, instance: str = "null") -> str:
    reason = f"Adding new member {who} with group instance id {instance}; client reason: x"
    return preparing(at, generation, reason)


def left(at: float, who: str) -> str:
    return line(
        at,
        f"[Group g] Member {who} has left group through explicit `LeaveGroup` request; client "
        "reason: the consumer is being closed",
    )


def leaves(at: float, generation: int, who: str) -> list[str]:
    reason = f"explicit `LeaveGroup` request for ({who}) members."
    return [left(at, who), preparing(at, generation, reason)]


def done(at: float, generation: int, members: int = 2, leader_s: float = 0.01) -> list[str]:
    return [
        line(at, f"Stabilized group g generation {generation} with {members} members."),
        line(
            at + leader_s,
            f"Assignment received from leader l for group g for generation {generation}. The group "
            f"has {members} members, 0 of which are static.",
        ),
    ]


def explain(lines: Iterable[str]) -> Explained:
    reader = LogReader("broker.log")
    events = [e for n, text in enumerate(lines, 1) for e in reader.read(n, text)]
    assert reader.counts.unknown == 0, reader.counts.examples
    (found,) = Explainer().feed_all([*events, *reader.rest()]).finish()
    return found


def names(found: Explained) -> list[str]:
    return [finding.name for finding in found.findings]


def test_a_rebalance_has_its_cause_its_member_its_phases_and_its_members() -> None:
    found = explain([joins(1, 4, member("svc", 1)), *done(3.5, 5, members=3, leader_s=0.25)])
    (rebalance,) = found.story.rebalances
    assert rebalance.cause is Cause.NEW_MEMBER
    assert (rebalance.member, rebalance.client) == (member("svc", 1), "svc")
    assert (rebalance.before, rebalance.generation, rebalance.members) == (4, 5, 3)
    assert (rebalance.join_s, rebalance.leader_s) == (2.5, 0.25)
    assert found.makers == "Kafka 3.7 or newer"
    assert names(found) == []


def test_the_wait_for_a_busy_member_is_a_slow_joiner_with_the_timeout_that_bounds_it() -> None:
    found = explain([joins(0, 4, member("svc", 1)), *done(300.2, 5)])
    (slow,) = found.findings
    assert slow.name == "slow joiner"
    assert "300.2 s" in slow.says
    assert "max.poll.interval.ms" in slow.says


def test_rebalances_without_rest_are_a_storm_with_its_member() -> None:
    lines = []
    for number in range(5):
        lines += [
            joins(number * 2, number, member("svc", number)),
            *done(number * 2 + 0.1, number + 1),
        ]
    found = explain(lines)
    storm = found.findings[0]
    assert storm.name == "storm"
    assert "one every 2.0 s" in storm.says
    assert "'svc'" in storm.advice
    assert len(storm.evidence) == len(set(storm.evidence)) == 3  # one line may end and begin
    assert "crash loop" in names(found)


def test_a_deployment_is_no_storm_but_asks_for_instance_ids() -> None:
    lines = []
    for number in range(3):
        at = number * 60.0
        lines += [*leaves(at, 2 * number, member("svc", number)), *done(at + 0.1, 2 * number + 1)]
        lines += [joins(at + 30, 2 * number + 1, member("svc", 10 + number))]
        lines += done(at + 30.1, 2 * number + 2)
    found = explain(lines)
    assert names(found) == ["deploy without static ids"]
    assert found.findings[0].known is Known.BOUNDED


def test_one_killed_process_and_the_orderly_end_of_the_group_are_no_deployment() -> None:
    killed, back, other = (member("svc", number) for number in range(3))
    lines = [
        line(0, f"Member {killed} in group g has failed, removing it from the group."),
        preparing(0, 3, f"removing member {killed} on heartbeat expiration."),
        *done(0.1, 4, members=1),
        joins(30, 4, back),
        *done(30.1, 5, members=2),
        *leaves(600, 5, other),
        *done(600.1, 6, members=1),
        *leaves(601, 6, back),
    ]
    assert "deploy without static ids" not in names(explain(lines))


def test_the_start_of_several_processes_is_no_storm() -> None:
    """Each new member is counted, and all stay."""
    lines = [joins(0, 0, member("svc", 0)), *done(3, 1, members=1)]
    for number in range(1, 5):
        lines += [joins(3 + number, number, member("svc", number))]
        lines += done(3.5 + number, number + 1, members=number + 1)
    assert "storm" not in names(explain(lines))


def test_a_quick_deployment_is_no_storm() -> None:
    lines = []
    for number in range(4):
        at = number * 4.0
        lines += [*leaves(at, 2 * number, member("svc", number)), *done(at + 0.5, 2 * number + 1)]
        lines += [joins(at + 1.5, 2 * number + 1, member("svc", 10 + number))]
        lines += done(at + 2, 2 * number + 2, members=3)
    assert "storm" not in names(explain(lines))


def test_a_leader_that_begins_second_rounds_and_leaves_is_no_storm() -> None:
    """Seen on a real Kafka: the rows of one member are no joins of one member."""
    lines = []
    for number in range(3):
        at, who = number * 4.0, member("svc", number)
        second = f"Leader {who} re-joining group during Stable; client reason: gave up 1 partitions"
        lines += [joins(at, 3 * number, who), *done(at + 0.3, 3 * number + 1, members=2)]
        lines += [preparing(at + 1, 3 * number + 1, second)]
        lines += done(at + 1.3, 3 * number + 2, members=2)
        lines += [*leaves(at + 2, 3 * number + 2, who), *done(at + 2.2, 3 * number + 3, members=1)]
    assert "storm" not in names(explain(lines))


def test_members_that_join_again_and_again_are_a_storm_whether_they_are_counted_or_not() -> None:
    """The same member; members that nobody counts; a group in which nobody else had to join."""
    same, many, alone = [], [], []
    for number in range(8):
        at = number * 3.0
        old = line(at + 1, f"Stabilized group g generation {number + 6} (__consumer_offsets-7)")
        same += [joins(at, number, member("svc", 1)), *done(at + 1, number + 1, number + 2)]
        many += [joins(at, number + 5, member("svc", number)), old]
    for number in range(3):
        at = number * 3.0
        alone += [joins(at, number + 5, member("svc", number))]
        alone += done(at + 0.001, number + 6, members=1)
    for lines in (same, many, alone):
        assert names(explain(lines))[0] == "storm"


def test_a_line_about_another_partition_of_the_offsets_topic_is_not_about_the_last_group() -> None:
    other = "Finished loading of metadata from __consumer_offsets-{} with epoch 1 in 5ms where 0ms"
    lines = [
        line(0, "Loaded classic group g with 1 members."),
        line(0.5, other.format(8)).replace("partition=7", "partition=8"),
        line(1, other.format(7)),
    ]
    found = explain(lines)
    assert (found.story.partition, names(found)) == (7, ["coordinator moved"])
    assert [e.at for e in found.story.examples[Kind.COORDINATOR_MOVED]] == [found.story.last]


def test_static_members_need_no_such_advice() -> None:
    lines = []
    for number in range(3):
        at = number * 60.0
        lines += [*leaves(at, 2 * number, member("svc", number)), *done(at + 0.1, 2 * number + 1)]
        lines += [joins(at + 30, 2 * number + 1, member("svc", 10 + number), f"i{number}")]
        lines += done(at + 30.1, 2 * number + 2)
    assert "deploy without static ids" not in names(explain(lines))


@pytest.mark.parametrize(
    ("expired_at", "known", "silent"),
    [(50.0, Known.ASSUMED, True), (40.0, Known.MEASURED, False)],
)
def test_a_member_that_expires_one_default_session_after_its_join_is_assumed_to_have_been_silent(
    expired_at: float, known: Known, silent: bool
) -> None:
    failed = f"Member {member('svc', 1)} in group g has failed, removing it from the group."
    expired = line(expired_at, failed)
    found = explain([joins(0, 4, member("svc", 1)), *done(4.99, 5), expired])
    (finding,) = (each for each in found.findings if each.name == "session expired")
    assert finding.known is known
    assert ("no heartbeat at all (session.timeout.ms, 45 s" in finding.says) is silent


def test_a_leader_that_sends_no_assignment() -> None:
    found = explain(
        [
            joins(0, 4, member("svc", 1)),
            line(1, "Stabilized group g generation 5 with 2 members."),
            preparing(61, 5, "Removing HashSet(a) on pending sync request expiration"),
            *done(62, 6),
        ]
    )
    assert "leader cannot sync" in names(found)


def test_a_group_record_that_is_too_large() -> None:
    found = explain(
        [
            preparing(0, 4, "Error UNKNOWN_SERVER_ERROR when storing group assignment during "
                      "SyncGroup (member: m)."),
            *done(1, 5),
        ]
    )  # fmt: skip
    assert "group record too large" in names(found)


def test_members_that_expire_right_after_each_join_sent_no_heartbeat() -> None:
    who = member("svc", 1)
    found = explain(
        [
            joins(0, 4, who),
            *done(3, 5, members=1),
            line(13.01, f"Member {who} in group g has failed, removing it from the group."),
            preparing(13.01, 5, f"removing member {who} on heartbeat expiration."),
        ]
    )
    (expired,) = found.findings
    assert expired.name == "session expired"
    assert "sent no heartbeat at all" in expired.says


def test_a_cause_that_an_old_broker_does_not_tell_is_likely_the_line_before() -> None:
    old = "[2018-01-01 00:00:00,000] INFO [GroupCoordinator 0]: "
    found = explain(
        [
            f"{old}Member m-1 in group g has failed, removing it from the group",
            f"{old}Preparing to rebalance group g with old generation 4 (__consumer_offsets-7)",
            f"{old}Stabilized group g generation 5 (__consumer_offsets-7)",
            f"{old}Assignment received from leader for group g for generation 5",
        ]
    )
    (rebalance,) = found.story.rebalances
    assert (rebalance.cause, rebalance.member, rebalance.certain) == (Cause.EXPIRED, "m-1", False)
    assert found.makers == "Kafka 1.0 to 2.0"


def test_one_name_with_two_offsets_partitions_is_two_groups() -> None:
    reader = LogReader("both.log")
    lines = [joins(0, 4, "a"), joins(1, 9, "b").replace("partition=7", "partition=8")]
    events = [e for n, text in enumerate(lines, 1) for e in reader.read(n, text)]
    explainer = Explainer().feed_all(events)
    assert explainer.doubles == ["g"]
    assert [e.story.partition for e in explainer.finish()] == [7, 8]


def test_memory_is_bounded_and_the_rest_is_counted() -> None:
    lines = (
        text
        for n in range(500)
        for text in [joins(n % 300, n, member("svc", n % 999)), *done(n % 300, n + 1)]
    )
    reader = LogReader("long.log")
    explainer = Explainer()
    assert explainer.most_rows == 2_000
    explainer.most_rows = 200
    for number, text in enumerate(lines, 1):
        explainer.feed_all(reader.read(number, text))
    (found,) = explainer.finish()
    assert found.story.total == 500
    assert len(found.story.rebalances) == 200
    assert all(len(kept) <= 3 for kept in found.story.examples.values())


def test_all_groups_together_keep_a_bounded_number_of_rebalances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explaining, "MOST_ROWS", 1_000)
    texts = [
        text.replace("group g ", f"group g{g} ")
        for n in range(200)
        for g in range(11 if n < 30 else 10)  # the last group is quiet
        for text in [joins(n, n, member("svc", n)), *done(n + 0.1, n + 1)]
    ]
    reader = LogReader("long.log")
    explainer = Explainer()
    for number, text in enumerate(texts, 1):
        explainer.feed_all(reader.read(number, text))
    stories = [each.story for each in explainer.finish()]
    kept = [len(story.rebalances) for story in stories]
    assert sum(kept) <= 1_000
    assert kept[:10] == [explainer.most_rows] * 10
    assert kept[10] == 30, "a group with few rebalances keeps all"
    assert [story.total for story in stories] == [200] * 10 + [30]
    assert [story.causes[Cause.NEW_MEMBER] for story in stories] == [200] * 10 + [30]
    assert {story.rebalances[-1].generation for story in stories[:10]} == {200}
    assert explainer.dropped == 2_030 - sum(kept)


def test_all_groups_together_keep_a_bounded_number_of_client_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explaining, "MOST_CLIENTS", 10)
    monkeypatch.setattr(explaining, "MOST_STEPS", 4)
    client = (
        "[2026-03-01 10:00:00,{0:03}] INFO [Consumer clientId=c{0}, groupId=h] (Re-)joining group"
    )
    texts = [text for n in range(20) for text in leaves(n, n, member(f"pod{n}", 1))]
    texts += [joins(30 + n, 20 + n, member(f"new{n}", 1)) for n in range(20)]
    texts += [client.format(n) for n in range(20)]
    reader = LogReader("long.log")
    explainer = Explainer()
    for number, text in enumerate(texts, 1):
        explainer.feed_all(reader.read(number, text))
    told = {each.story.group: each.story for each in explainer.finish()}
    assert (len(told["g"].left_clients), len(told["g"].joined_clients)) == (10, 0)
    assert (told["g"].total, told["g"].counts[Kind.LEFT]) == (40, 20)
    assert (told["h"].clients, told["h"].counts[Kind.JOINING]) == ({}, 20)
    assert explainer.clients_limit.refused == 10 + 20 + 20


def test_the_reason_of_a_member_that_left_is_that_of_its_own_line() -> None:
    reason = "consumer poll timeout has expired."
    lines = leaves(0, 4, member("svc", 1))
    lines[0] = lines[0].replace("the consumer is being closed", reason)
    found = explain([*lines, *done(1, 5)])
    assert names(found) == ["poll interval"]
    assert found.story.rebalances[0].client_reason.startswith("consumer poll timeout")
    assert explain(leaves(0, 4, "m")).story.rebalances[0].client_reason == (
        "the consumer is being closed"
    )


def test_a_record_that_a_broker_could_not_store_names_its_reason() -> None:
    text = "Appending metadata message for group g generation 5 failed due to {}, returning UNKNOWN"
    large = explain(
        [line(0, text.format("org.x.RecordTooLargeException") + " error code to the client")]
    )
    (finding,) = large.findings
    assert (finding.name, finding.known) == ("group record too large", Known.MEASURED)
    few = explain(
        [
            preparing(
                0,
                4,
                "Error NOT_ENOUGH_REPLICAS when storing group assignment during SyncGroup "
                "(member: m).",
            ),
            *done(1, 5),
        ]
    )
    assert few.findings[0].name == "group not stored"


def test_a_leader_that_joined_too_late_is_named() -> None:
    text = (
        "Group leader [memberId: m-1, groupInstanceId: null] failed to join before the rebalance "
        "timeout. Member m-2 was elected as the new leader."
    )
    (finding,) = explain([joins(0, 4, "m-3"), line(5, text), *done(5, 5)]).findings
    assert finding.name == "leader too late"
    assert "m-1" in finding.says


def expires(at: float, generation: int, who: str, group: str = "g") -> list[str]:
    return [
        line(at, f"Member {who} in group {group} has failed, removing it from the group."),
        preparing(at, generation, f"removing member {who} on heartbeat expiration.", group),
    ]


def test_a_member_that_is_back_right_after_its_expiry_had_a_pause() -> None:
    lines = [*expires(60, 4, member("svc", 1)), *done(60.1, 5)]
    found = explain([*lines, joins(61.5, 5, member("svc", 2)), *done(61.6, 6)])
    (finding,) = [f for f in found.findings if f.name == "session shorter than pauses"]
    assert "joined again 1.5 s later" in finding.says
    assert finding.known is Known.BOUNDED
    later = explain([*lines, joins(90, 5, member("svc", 2)), *done(90.1, 6)])
    assert "session shorter than pauses" not in names(later), "a process that starts again"


def test_members_of_many_groups_that_expire_at_once_point_to_the_coordinator() -> None:
    reader = LogReader("broker.log")
    lines = [text for n in range(3) for text in expires(60, 4, member("svc", n), f"g{n}")]
    events = [e for n, text in enumerate(lines, 1) for e in reader.read(n, text)]
    found = Explainer().feed_all(events).finish()
    assert [names(each)[0] for each in found] == ["many groups expired at once"] * 3


def test_assignors_that_do_not_fit_are_named() -> None:
    text = (
        "[2026-03-01 10:00:00,000] ERROR [Consumer clientId=c, groupId=g] JoinGroup failed due to "
        "fatal error: The group member's supported protocols are inconsistent"
    )
    assert names(explain([text])) == ["assignors do not fit"]


def test_a_high_generation_without_a_rebalance_is_a_storm_without_a_cause() -> None:
    text = (
        "[2026-03-01 10:00:00,000] INFO [Consumer clientId=c, groupId=g] JoinGroup failed: x. Sent "
        "generation was Generation{generationId=76025, memberId='m', protocol='range'}"
    )
    synced = "Reconciling assignment with local epoch 76025"
    lines = [text, f"[2026-03-01 10:00:01,000] INFO [Consumer clientId=c, groupId=g] {synced}"]
    assert names(explain(lines))[0] == "storm"


def test_a_high_generation_alone_is_no_storm_if_the_log_shows_rests() -> None:
    """Kafka before 2.8 counts no members: two joins of a deployment beside hours of rest."""
    lines = []
    for number, at in enumerate((0.0, 5.0)):
        old = f"Stabilized group g generation {number + 4001} (__consumer_offsets-7)"
        lines += [joins(at, number + 4000, member("svc", number)), line(at + 1, old)]
    short = explain(lines)
    assert (short.findings[0].name, short.findings[0].known) == ("storm", Known.ASSUMED)
    rested = line(
        1_800, f"Member {member('svc', 0)} in group g has failed, removing it from the group"
    )
    assert "storm" not in names(explain([*lines, rested]))


def client_joins(at: float, generation: int, who: str) -> list[str]:
    """The lines of a Java client that joins."""
    told = f"Generation{{generationId={generation}, memberId='{who}', protocol='range'}}"
    clock = f"[2026-03-01 10:{int(at) // 60:02}:{int(at) % 60:02},"
    context = "INFO [Consumer clientId=c, groupId=g]"
    return [
        f"{clock}000] {context} (Re-)joining group",
        f"{clock}500] {context} Successfully joined group with generation {told}",
        f"{clock}600] {context} Successfully synced group in generation {told}",
    ]


def test_a_client_with_new_member_ids_one_after_the_other_is_a_crash_loop() -> None:
    ids = [member("c", number) for number in range(5)]
    loop = [text for n, who in enumerate(ids) for text in client_joins(n * 40, n + 5, who)]
    (found,) = [f for f in explain(loop).findings if f.name == "crash loop"]
    assert found.says == "Client 'c' joined with 5 member ids, one after the other."
    assert len(found.evidence) == 3
    two = [text for n in range(10) for text in client_joins(n * 40, n + 5, ids[n % 2])]
    assert "crash loop" not in names(explain(two)), "two processes with one client id"
    few = [text for n in range(3) for text in client_joins(n * 40, n + 5, ids[n])]
    assert "crash loop" not in names(explain(few))


def test_a_coordinator_that_moved_is_seen_in_the_log_of_a_client() -> None:
    found = "[2026-03-01 10:00:0{},000] INFO [Consumer clientId=c{}, groupId=g] Discovered group "
    found += "coordinator kafka{}:9092 (id: 214748364{} rack: null)"
    moved = explain([found.format(1, 1, 1, 6), found.format(2, 1, 2, 5)])
    assert names(moved) == ["coordinator moved"]
    assert "at kafka1:9092 (id: 2147483646 rack: null), and later at kafka2" in (
        moved.findings[0].says
    )
    assert names(explain([found.format(1, 1, 1, 6), found.format(2, 1, 1, 6)])) == []


def test_a_member_that_leaves_again_in_a_rebalance_without_a_beginning_is_explained() -> None:
    """The line about the start may be missing; the member of such a rebalance is likely only."""
    who = member("a", 1)
    begun, assigned = done(0.5, 5)
    found = explain([left(0, who), begun, left(0.6, who), assigned])
    (rebalance,) = found.story.rebalances
    assert (rebalance.cause, rebalance.member, rebalance.certain) == (Cause.LEFT, who, False)
    assert rebalance.client_reason == "the consumer is being closed"
