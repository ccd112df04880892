"""The folder with programs of others that check files in docs; ``.ci/run`` fills the folder."""

from __future__ import annotations

from kohort.testing.kafka_jars import KAFKA, home

CHECKERS = home(KAFKA).parents[1] / "checkers"
