"""``kohort spark sweep``: mistakes are refused before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kohort.cli.main import cli
from kohort.model.errors import ConfigError


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--deployment", "members"], "NAME=VALUE"),
        (["--deployment", "size=3"], "members, partitions, restore-s"),
        (["--deployment", "members=x"], "expected a number"),
        (["--deployment", "restore-s=inf"], "expected a number"),
        (["--deployment", "restore-s=-1"], "0 to 86400"),
        (["--scenario", "restart=often"], "SCENARIO=TIMES"),
        (["--scenario", "earthquake"], "rolling-bounce"),
        (["--policy", "luck"], "cooperative-sticky"),
        (["--session-timeout", "1"], "6 to 1800 s"),
        (["--conf", "spark.ui"], "NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    args: list[str], told: str, tmp_path: Path
) -> None:
    output = tmp_path / "sweep"
    result = CliRunner().invoke(cli, ["spark", "sweep", "--output", str(output), *args])
    assert isinstance(result.exception, ConfigError), result
    assert told in str(result.exception)
    assert not output.exists()
