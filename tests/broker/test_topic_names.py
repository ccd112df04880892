"""Topic names and topic settings, by Kafka's rules."""

import pytest

from kohort.broker.topic_config import TopicOverrides, defaults, effective, parse_overrides
from kohort.broker.topic_names import colliding, why_illegal
from kohort.host.settings import BrokerSettings
from kohort.model.errors import ConfigError


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__x", "x" * 249])
def test_legal(name):
    assert why_illegal(name) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("x" * 250, "at most 249"),
        ("a/b", "characters other than"),
        ("a b", "characters other than"),
        ("a\n", "characters other than"),
        ("é", "characters other than"),
    ],
)
def test_illegal(name, part):
    assert part in (why_illegal(name) or "")


def test_dots_and_underscores_collide():
    assert colliding("a.b", ["x", "a_b"]) == "a_b"
    assert colliding("a_b", ["a.b"]) == "a.b"
    assert colliding("a.b", ["a.b", "a-b"]) is None
    assert colliding("ab", ["a.b"]) is None


def test_overrides_lie_over_the_brokers_settings():
    settings = BrokerSettings(log_retention_ms=1000, message_max_bytes=2000)
    overrides = parse_overrides(
        {"retention.ms": "5", "cleanup.policy": "compact", "flush.ms": None}
    )
    config = effective(settings, overrides)
    assert (config.retention_ms, config.cleanup_policy) == (5, "compact")
    assert (config.max_message_bytes, config.flush_ms) == (2000, None)
    assert overrides.given() == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert parse_overrides(overrides.given()) == overrides
    assert effective(settings, TopicOverrides()) == defaults(settings)


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ({"retention": "1"}, "unknown setting retention"),
        ({"retention.ms": "-2"}, "retention.ms is -2, expected -1 to"),
        ({"compression.type": "gzip"}, "compression.type is 'gzip', expected producer"),
    ],
)
def test_bad_overrides(pairs, sentence):
    with pytest.raises(ConfigError) as caught:
        parse_overrides(pairs)
    assert str(caught.value).startswith(sentence)
