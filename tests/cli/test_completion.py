"""Shell completion: commands, options, and names of the cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.main import COMMANDS, cli
from kohort.client.admin import Admin
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position


def completed(*words: str) -> list[str]:
    """The completions of the last word."""
    *before, last = words
    shell = BashComplete(cli, {}, "kohort", "_KOHORT_COMPLETE")
    return [item.value for item in shell.get_completions(before, last)]


def test_commands_and_options_are_completed() -> None:
    assert completed("") == [*COMMANDS]
    assert completed("gr") == ["groups"]
    assert completed("groups", "de") == ["delete", "delete-offsets", "describe"]
    assert completed("groups", "reset-offsets", "g", "--to-e") == ["--to-earliest"]
    assert completed("produce", "--compression", "z") == ["zstd"]


def test_names_come_from_the_cluster(kohort_broker: EmbeddedBroker) -> None:
    server = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=server) as admin:
        admin.create_topic("payments", 1)
        admin.alter_offsets("orders", {TopicPartition("payments", 0): Position(0)})
    at = ("--bootstrap-server", server)
    assert completed("groups", "describe", *at, "or") == ["orders"]
    assert completed("groups", "delete", *at, "--group", "") == ["orders"]
    assert completed("groups", "reset-offsets", *at, "--topic", "pay") == ["payments"]
    assert completed("produce", *at, "--topic", "") == ["payments"]


def test_a_cluster_without_an_answer_completes_nothing() -> None:
    assert completed("groups", "describe", "--bootstrap-server", "127.0.0.1:1", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    asked = {"_KOHORT_COMPLETE": f"{shell}_source"}
    shown = CliRunner().invoke(cli, [], env=asked, prog_name="kohort")
    assert (shown.exit_code, f"{shell}_complete" in shown.output) == (0, True), shown.output


def test_completing_a_command_imports_no_other_command() -> None:
    program = """
import sys
from click.shell_completion import BashComplete
from kohort.cli.main import cli
BashComplete(cli, {}, "kohort", "_KOHORT_COMPLETE").get_completions([], "p")
assert not [name for name in sys.modules if name.startswith("kohort.client")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
