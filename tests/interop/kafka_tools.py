"""Kafka's command-line tools, run one after the other by one Java: a Java each takes much longer.

The console consumer is not among them: it counts records in a static variable.
"""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Final, Self

from tests.java import java_with_kafka

from kohort.testing.kafka_jars import KafkaUnavailable

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_PROGRAM: Final = Path(__file__).parent / "java" / "Tools.java"


class KafkaTools:
    """Tools pointed at one broker; a context manager that ends Java."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._java = subprocess.Popen(
            [*java_with_kafka(), str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, tool: str, *arguments: str) -> str:
        """The output of a tool.

        Raises:
            KafkaUnavailable: the tool failed; the message ends with its output.
        """
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        words = (tool, "--bootstrap-server", self._bootstrap, *arguments)
        print("\t".join(words), file=self._java.stdin, flush=True)
        status, _, encoded = self._java.stdout.readline().partition(" ")
        output = base64.b64decode(encoded).decode()
        if status != "0":
            raise KafkaUnavailable(f"{tool} ended with status {status}:\n{output}")
        return output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._java.kill()
        self._java.communicate()
