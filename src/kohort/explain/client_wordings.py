"""All messages of clients about their groups, compiled.

In: the tables of each program. Out: `CLIENT`. Must not know: frames, brokers.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind, Side
from kohort.explain.java_details_wordings import JAVA_DETAILS
from kohort.explain.java_wordings import JAVA
from kohort.explain.librdkafka_details_wordings import LIBRDKAFKA_DETAILS
from kohort.explain.librdkafka_wordings import LIBRDKAFKA
from kohort.explain.other_wordings import BROD, FRANZ_GO, KAFKAJS, SARAMA
from kohort.explain.python_wordings import AIOKAFKA, KAFKA_PYTHON
from kohort.explain.templates import Wording, wording

_MAKERS: Final = (
    ("librdkafka", (*LIBRDKAFKA, *LIBRDKAFKA_DETAILS)),
    ("aiokafka", AIOKAFKA),
    ("kafka-python", KAFKA_PYTHON),
    ("franz-go", FRANZ_GO),
    ("sarama", SARAMA),
    ("KafkaJS", KAFKAJS),
    ("brod", BROD),
    ("Java", (*JAVA, *JAVA_DETAILS, (Kind.JOINING, "(Re-)joining group"))),
)

CLIENT: Final[tuple[Wording, ...]] = tuple(
    wording(kind, Side.CLIENT, maker, template)
    for maker, table in _MAKERS
    for kind, template in table
)
