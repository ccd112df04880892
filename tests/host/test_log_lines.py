"""Log lines as JSON or text, in a command and in the processes that it starts."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kohort.host.log_lines import JSON, TEXT, VARIABLE, set_up_from_environment, set_up_log_lines
from kohort.model.errors import ConfigError

LOG = logging.getLogger("kohort.spark.source.driver")


@pytest.fixture(autouse=True)
def logger_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    logger = logging.getLogger("kohort")
    before = [*logger.handlers], logger.level, logger.propagate
    yield
    logger.handlers, logger.level, logger.propagate = before


def test_each_line_is_an_object_with_the_fields_of_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_log_lines(JSON, "info", group="lake")
    set_up_from_environment(application="orders-0")
    LOG.debug("not told")
    LOG.info("acquired %s", "t-0\nt-1")
    try:
        raise ValueError("odd")
    except ValueError:
        LOG.exception("failed")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "INFO",
        "logger": "kohort.spark.source.driver",
        "pid": os.getpid(),
        "group": "lake",
        "application": "orders-0",
        "message": "acquired t-0\nt-1",
    }
    assert second["level"] == "ERROR"
    assert second["error"].endswith("ValueError: odd")


def test_a_process_that_is_started_later_logs_in_the_same_way() -> None:
    program = (
        "import logging; from kohort.host.log_lines import set_up_from_environment as look; "
        "look(); logging.getLogger('kohort.x').info('here')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    set_up_log_lines(JSON, "INFO", group="lake")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stderr)
    assert (told["group"], told["message"]) == ("lake", "here")


def test_without_log_lines_a_field_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_from_environment(application="a")
    assert VARIABLE not in os.environ
    set_up_log_lines(TEXT, "WARNING")
    LOG.warning("late")
    assert re.fullmatch(
        r"\S+ \S+ WARNING late \(kohort\.spark\.source\.driver\)\n", capsys.readouterr().err
    )


def test_an_unknown_level_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--log-level is 'LOUD', expected DEBUG"):
        set_up_log_lines(JSON, "LOUD")
    assert VARIABLE not in os.environ
