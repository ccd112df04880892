"""All messages of clients about their groups, compiled.

In: the tables of each program. Out: `CLIENT`. Must not know: frames, brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kohort.explain.events import Kind, Side
from kohort.explain.wordings.frameworks import FRAMEWORKS
from kohort.explain.wordings.java import JAVA
from kohort.explain.wordings.java_details import JAVA_DETAILS
from kohort.explain.wordings.librdkafka import LIBRDKAFKA
from kohort.explain.wordings.librdkafka_details import LIBRDKAFKA_DETAILS
from kohort.explain.wordings.other import (
    BROD,
    FRANZ_GO,
    KAFKA_GO,
    KAFKAJS,
    RUBY_KAFKA,
    SARAMA,
)
from kohort.explain.wordings.python import AIOKAFKA, COMMITS, EITHER, KAFKA_PYTHON
from kohort.explain.wordings.spark import SPARK
from kohort.explain.wordings.templates import Wording, wording


def _brief(table: tuple[tuple[Kind, str], ...]) -> Iterator[tuple[Kind, str]]:
    """Messages of franz-go with an empty last value, or with the group as their only value.

    A member that gets no partitions writes an empty value. Some loggers drop all but the group.
    """
    known = {template for _, template in table}
    for kind, template in table:
        filled, _, last = template.rpartition(": ")
        if _NAME.fullmatch(last) and last != "<group>":
            yield kind, f"{filled}:"
        name, found, _ = template.partition("; group: <group>, ")
        brief = f"{name}; group: <group>"
        if found and brief not in known:
            known.add(brief)
            yield kind, brief


_NAME: Final = re.compile(r"<\w+>")

_MAKERS: Final = (
    ("librdkafka", (*LIBRDKAFKA, *LIBRDKAFKA_DETAILS)),
    ("aiokafka", AIOKAFKA),
    (EITHER, COMMITS),
    ("kafka-python", KAFKA_PYTHON),
    ("franz-go", (*FRANZ_GO, *_brief(FRANZ_GO))),
    ("sarama", SARAMA),
    ("KafkaJS", KAFKAJS),
    ("brod", BROD),
    ("kafka-go", KAFKA_GO),
    ("ruby-kafka", RUBY_KAFKA),
    ("Spark", SPARK),
    *FRAMEWORKS,
    ("Java", (*JAVA, *JAVA_DETAILS, (Kind.JOINING, "(Re-)joining group"))),
)

CLIENT: Final[tuple[Wording, ...]] = tuple(
    wording(kind, Side.CLIENT, maker, template)
    for maker, table in _MAKERS
    for kind, template in table
)
