"""Options of ``kohort pipeline`` in a TOML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kohort.cli.main import cli
from kohort.cli.spark import pipeline as command
from kohort.model.errors import ConfigError

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "first-pipeline.md"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command with a file up to the start of Spark; returns its settings."""
    pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")
    seen: list[Any] = []
    monkeypatch.setattr(command, "_run", lambda config, *_, **more: seen.append((config, more)))
    monkeypatch.setattr(command, "_set_on_signals", lambda *_: None)
    (tmp_path / "q.sql").write_text("SELECT value FROM records")

    def run(text: str, *arguments: str) -> Any:
        file = tmp_path / "a.toml"
        file.write_text(text)
        done = CliRunner().invoke(cli, ["pipeline", "--config", str(file), *arguments])
        if isinstance(done.exception, ConfigError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return seen[-1]

    return run


WHOLE = """
bootstrap-server = "b:1"
topic = ["orders", "payments"]
group = "lake"
sql = "q.sql"
output = "tables/orders"
limit = 1000
available-now = true
json = true
drain = 2.5
starting-offsets = "latest"

[set]
client.id = "a"
"enable.metrics.push" = false

[conf]
spark.driver.memory = "2g"
"""


def test_every_kind_of_option_comes_from_the_file(run: Any, tmp_path: Path) -> None:
    config, more = run(WHOLE)
    assert (config.bootstrap, config.topics, config.group) == ("b:1", "orders,payments", "lake")
    assert config.sql == "SELECT value FROM records"
    assert config.output == tmp_path / "tables" / "orders"
    assert (config.limit, config.available_now, config.drain_s) == (1000, True, 2.5)
    assert config.starting_offsets == "latest"
    assert config.kafka == {"client.id": "a", "enable.metrics.push": "false"}
    assert config.spark == {"spark.driver.memory": "2g"}
    assert more == {"as_json": True}


def test_the_command_line_goes_before_the_file(run: Any) -> None:
    config, _ = run(WHOLE, "--limit", "5", "--topic", "other", "--set", "client.id=b")
    assert (config.limit, config.topics, config.kafka) == (5, "other", {"client.id": "b"})
    assert config.group == "lake"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limits = 3", "has the key limits, which is no option; did you mean limit"),
        ("zzz = 3", "it may have bootstrap-server"),
        ("limit = \ngroup = 3", "is not TOML: .*line 1"),
        ("set = 3", r"expected a table \[set\]"),
        ("limit = {a = 1}", "expected a whole number as limit"),
        ("limit = 1.5", r"a\.toml: expected a whole number as limit, found 1\.5"),
        ("limit = true", "expected a whole number as limit, found True"),
        ("limit = 0", r"a\.toml: the value of limit is wrong: 0 is not in the range x>=1"),
        ("limit = 'many'", "expected a whole number as limit, found 'many'"),
        ("evolve = 1", r"a\.toml: expected true or false as evolve, found 1"),
        ("evolve = 'yes'", "expected true or false as evolve, found 'yes'"),
        ("group = true", "expected a text or a number as group, found True"),
        ("group = 2026-01-01", "expected a text or a number as group, found"),
        ("table = 'csv'", r"a\.toml: the value of table is wrong: 'csv' is not one of"),
        ("drain = nan", r"a\.toml: the value of drain is wrong: nan is no finite number"),
        ("max-delay = inf", "the value of max-delay is wrong: inf is no finite number"),
        (
            "[set]\nbootstrap.servers = ['a', 'b']",
            "number as bootstrap.servers, .*commas",
        ),
        ("topic-pattern = 'o.*'\n" + WHOLE, "give either --topic, or --topic-pattern"),
        ("config = 'b.toml'", "has the key config, which is no option"),
    ],
)
def test_a_mistake_in_the_file_is_named(run: Any, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["pipeline", "--config", str(tmp_path / "none.toml")])
    assert isinstance(done.exception, ConfigError)
    assert "none.toml: No such file or directory; name a TOML file" in str(done.exception)


def test_the_file_of_the_tutorial_is_right(run: Any, tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "visits.sql").write_text("SELECT value FROM records")
    config, _ = run(text)
    assert (config.topics, config.output) == ("visits", tmp_path / "table")
    assert config.kafka == {"session.timeout.ms": "6000"}
