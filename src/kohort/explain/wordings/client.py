"""All messages of clients about their groups, compiled.

In: the tables of each program. Out: `CLIENT`. Must not know: frames, brokers.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind, Side
from kohort.explain.wordings.java import JAVA
from kohort.explain.wordings.java_details import JAVA_DETAILS
from kohort.explain.wordings.librdkafka import LIBRDKAFKA
from kohort.explain.wordings.librdkafka_details import LIBRDKAFKA_DETAILS
from kohort.explain.wordings.other import BROD, FRANZ_GO, KAFKAJS, SARAMA
from kohort.explain.wordings.python import AIOKAFKA, KAFKA_PYTHON
from kohort.explain.wordings.templates import Wording, wording

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
