"""``kohort lab --open``: two live groups on one coordinator, disturbed alike."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from kohort.cli.lab.live import LiveBroker, LiveLab, owners_told
from kohort.cli.main import cli
from kohort.model.errors import ConfigError
from kohort.testing.kafka_group import KafkaGroup

PATIENCE_S = 120.0


@pytest.fixture
def group() -> KafkaGroup:
    """A group that is not started."""
    return KafkaGroup("127.0.0.1:1", members=2, partitions=3, policy="range", group="eager")


@pytest.fixture
def lab(tmp_path: Path, group: KafkaGroup) -> LiveLab:
    return LiveLab(LiveBroker(tmp_path), [group, group])


def test_other_clients_own_what_the_records_say(group: KafkaGroup) -> None:
    uuid = "-12345678-1234-1234-1234-123456789012"
    recorded = {"eager-0": f"c1{uuid}", "eager-1": f"java{uuid}"}
    recorded |= {"elsewhere-2": f"java{uuid}"}
    assert owners_told(group, recorded) == {"eager-1": f"java{uuid}"}
    assert group.max_idle_partition_s == 0
    assert owners_told(group, {"eager-1": f"go{uuid}"}) == {"eager-1": f"go{uuid}"}
    assert owners_told(group, {"eager-1": f"c1{uuid}"}) == {}, "a member tells it itself"


def test_wrong_disturbances_are_refused(lab: LiveLab) -> None:
    with pytest.raises(ConfigError, match="expected kill, stall, pause or coordinator"):
        lab.act("explode", "c1")
    with pytest.raises(ConfigError, match="no member 'c9'"):
        lab.act("kill", "c9")
    assert "    kafka_group.wait_settled()" in lab.as_test()


def test_disturbances_become_a_test(lab: LiveLab) -> None:
    lab._acts += [("kill", "c1", 10.0), ("coordinator", "c1", 0.0), ("stall", "c2", 30.0)]
    assert lab.as_test() == (
        "import pytest\n\n\n"
        '@pytest.mark.kafka_group(members=2, partitions=3, policy="range", '
        "settings={'max.poll.interval.ms': 20000})\n"
        "def test_disturbed_group(kafka_group):\n"
        '    kafka_group.kill("c1", back_s=10)\n'
        '    kafka_group.stall("c2", 30)\n'
        "    assert kafka_group.max_idle_partition_s < 1\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "eager", "--against", "eager"], "both 'eager'; name two policies"),
        (["--policy", "fair"], "fair"),
        (["--open", "scenarios"], "--open shows live groups; scenarios has no page"),
    ],
)
def test_wrong_options_of_the_live_lab(options: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cli(["lab", *options], standalone_mode=False)


@pytest.mark.slow
def test_two_live_groups_outlive_a_restart_of_their_coordinator(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kohort", "lab", "--members", "2", "--partitions", "4"]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout is not None
            page = re.match(r"http://127\.0\.0\.1:\d+/lab", process.stdout.readline())
            assert page is not None
            url = page[0]
            state = asked(f"{url}/state")
            assert [side["group"] for side in state["sides"]] == ["eager", "cooperative"]
            assert state["sides"][0]["numbers"][0] == ["partitions without an owner", "0"]
            body = json.dumps({"act": "coordinator", "member": ""}).encode()
            head = {"content-type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(f"{url}/act", body, head)).close()
            until(
                lambda: asked(f"{url}/state")["log"][0].endswith("over: restart the coordinator"),
                "the end of the restart",
                PATIENCE_S,
            )
            until(
                lambda: all(
                    side["numbers"][0][1] == "0" for side in asked(f"{url}/state")["sides"]
                ),
                "no partition without an owner",
                PATIENCE_S,
            )
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())
