"""Two groups for the page of the lab, without processes."""

from __future__ import annotations

from typing import Any

from kohort.model.errors import ConfigError


class Played:
    """Notes what the page asks for."""

    def __init__(self, *groups: str) -> None:
        self.groups = groups
        self.acts: list[tuple[str, str]] = []

    def state(self) -> dict[str, Any]:
        sides = [
            {
                "group": group,
                "policy": "range",
                "states": {"c1": "runs", "c2": "runs"},
                "numbers": [["longest time without an owner", "1.5 s"]],
            }
            for group in self.groups
        ]
        log = [f"{what} {member}" for what, member in self.acts]
        return {"bootstrap": "kafka:9092", "sides": sides, "log": log}

    def act(self, what: str, member: str) -> None:
        if member == "c2":
            raise ConfigError("c2 is disturbed already")
        self.acts.append((what, member))

    def as_test(self) -> str:
        return "def test_disturbed_group(kafka_group):\n    pass\n"
