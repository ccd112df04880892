"""Each wording finds its own message, and no other wording comes before it."""

from __future__ import annotations

import re
from time import process_time

import pytest

from kohort.explain.causes import _TABLE, Cause, clients_cause, reason_of
from kohort.explain.events import Kind
from kohort.explain.reading import LogReader
from kohort.explain.wordings.matching import WORDINGS, Found, understood
from kohort.explain.wordings.templates import FIELDS, NUMBERS, number, version_text
from kohort.explain.wordings.versions import versions_of

_NAME = re.compile(r"<(\w+)>")


def example(template: str) -> tuple[str, dict[str, str]]:
    """A message of a template, and its values."""
    values = {
        name: str(7 + position) if name in NUMBERS else f"a {name}-{position}"
        for position, name in enumerate(_NAME.findall(template))
    }
    text = _NAME.sub(lambda found: values[found[1]], template)
    return text.replace("…", " and more."), values


def told(found: Found) -> dict[str, str]:
    """All values that were found, by name."""
    fields = zip(FIELDS, found.fields, strict=True)
    return {name: value for name, value in fields if value} | found.details


def test_each_wording_finds_the_values_of_its_message() -> None:
    """One test for all, because each case takes a millisecond."""
    for own in WORDINGS:
        text, values = example(own.template)
        for end in ("", "."):
            for beginning in ("", "[GroupCoordinator 3]: ", "[thrd:main]: "):
                assert own.match(f"{beginning}{text}{end}") == values, own.template
        found = understood(text)
        assert found is not None, own.template
        assert found.wording.kind is own.kind, own.template
        assert told(found) == values, f"a less special wording comes before {own.template}"


def test_the_wordings_that_are_left_out_by_the_shape_of_a_text_do_not_fit_it() -> None:
    """Shapes have no digits and no letters of UUIDs, which words of messages have, too."""
    for own in WORDINGS[::7]:
        text, values = example(own.template)
        for value in ("", "dead-beef-1", "Added a new member; reason: é \ud800"):
            changed = text
            for name in values.keys() - NUMBERS:
                changed = changed.replace(values[name], value)
            fits = (w for w in WORDINGS if w.match(changed) is not None)
            found, first = understood(changed), next(fits, None)
            assert (found and found.wording) == first, changed


def test_a_long_text_is_read_with_the_same_values() -> None:
    for own in WORDINGS:
        text, values = example(own.template)
        for name in values.keys() - NUMBERS:
            longer = "v" * 2_000
            assert own.match(text.replace(values[name], longer)) == {**values, name: longer}


def test_a_hostile_text_costs_no_seconds() -> None:
    (own,) = [w for w in WORDINGS if w.template.startswith("Static member with groupInstanceId=")
              and "Replacing" in w.template]  # fmt: skip
    first, *middle, _ = re.split(r"<\w+>", own.template)
    text = first + "".join(part * 64 for part in middle) + own.mark + "!"
    begun = process_time()
    assert own.match(text) is None
    assert process_time() - begun < 2, "a pattern that tries all ways takes ten seconds"


@pytest.mark.parametrize("maker", ["Kafka", "librdkafka", "kafka-python", "aiokafka", "sarama"])
def test_the_quick_look_at_a_line_lets_messages_pass_that_do_not_name_their_group(
    maker: str,
) -> None:
    reader = LogReader("log")
    texts = [
        example(own.template)[0]
        for own in WORDINGS
        if own.maker == maker and own.kind not in {Kind.PROGRESS, Kind.HOUSEKEEPING}
    ]
    for number_of_line, text in enumerate(texts, 1):
        reader.read(number_of_line, text)
        reader.rest()
        assert reader.counts.understood == number_of_line, text


def test_group_names_and_member_ids_may_hold_blanks_quotes_and_brackets() -> None:
    group, member = "a group in state (x) 'y'", "'svc'@127.0.0.1'/<0.545.0>-1"
    line = (
        f"Preparing to rebalance group {group} in state PreparingRebalance with old generation 4 "
        f"(__consumer_offsets-7) (reason: Adding new member {member} with group instance id None; "
        "client reason: not provided)"
    )
    found = understood(line)
    assert found is not None
    values = told(found)
    assert (values["group"], values["generation"], values["partition"]) == (group, "4", "7")
    assert reason_of(values["reason"])[:3] == (Cause.NEW_MEMBER, member, "")


@pytest.mark.parametrize(("cause", "template"), _TABLE)
def test_each_reason_of_a_broker_has_its_cause(cause: Cause, template: str) -> None:
    text, values = example(template)
    told = reason_of(text.replace("a state", "Stable"))
    assert told.cause is cause
    assert told.member == values.get("member", "")
    assert reason_of(f"{text}; client reason: out of milk).").client_reason == "out of milk"


def test_a_member_that_gave_partitions_up_begins_a_second_round() -> None:
    for reason in ("need to revoke partitions [t-0] as indicated", "gave up 2 partitions"):
        told = reason_of(f"Leader m re-joining group during Stable; client reason: {reason}")
        assert (told.cause, told.member) == (Cause.SECOND_ROUND, "m")


def test_a_leader_that_saw_a_topic_grow_joins_again_for_that() -> None:
    for reason in ("cached metadata has changed", "partition counts changed: t 1 to 3"):
        told = reason_of(f"Leader m re-joining group during Stable; client reason: {reason}")
        assert (told.cause, told.member) == (Cause.TOPICS_CHANGED, "m")


def test_reasons_in_other_words_are_not_guessed() -> None:
    assert reason_of("the moon is full").cause is Cause.OTHER
    assert reason_of("").cause is Cause.UNTOLD


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("group is already rebalancing", Cause.OTHERS),
        ("cached metadata has changed from A at the beginning", Cause.TOPICS_CHANGED),
        ("need to revoke partitions t-0 and re-join", Cause.SECOND_ROUND),
        ("rebalance failed due to 'x' (MemberIdRequiredException)", Cause.JOIN_FAILED),
        ("consumer poll timeout has expired", Cause.POLL_EXPIRED),
        ("something else", Cause.UNTOLD),
    ],
)
def test_reasons_of_clients(text: str, cause: Cause) -> None:
    assert clients_cause(text, Kind.REQUESTED) is cause
    assert clients_cause(text, Kind.HEARTBEAT_REBALANCING) is Cause.OTHERS


def test_versions_are_narrowed_by_the_words_of_the_reason() -> None:
    whole = (number("2.1"), number("3.8"))
    found = versions_of(whole, "(reason: Adding new member m with group instanceid None)")
    assert found == (number("2.3"), number("2.4"))
    text = "(reason: Adding new member m with group instance id None; client reason: x)"
    newer = versions_of(whole, text)
    assert newer == (number("3.2"), number("3.8"))
    assert [version_text(number(v)) for v in ("2.3", "3.10", "4.0")] == ["2.3", "3.10", "4.0"]
