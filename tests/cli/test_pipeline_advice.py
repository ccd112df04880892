"""The options of a query: the advice about deleted records can be followed; the identity."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.cli.spark import pipeline as command
from kohort.model.errors import ConfigError
from kohort.spark.pipeline_config import PipelineConfig, source_options
from kohort.spark.source.options import DELETED, parse_options


def started_with(
    flags: list[str], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> PipelineConfig:
    """The settings that ``kohort pipeline`` takes from the flags; nothing is started."""
    configs: list[PipelineConfig] = []
    monkeypatch.setattr(command, "_run", lambda config, *_, as_json: configs.append(config))
    sql = directory / "rows.sql"
    sql.write_text("SELECT value FROM records")
    common = ["--bootstrap", "b:1", "--topic", "t", "--group", "g"]
    files = ["--sql", str(sql), "--output", str(directory / "table")]
    result = CliRunner().invoke(command.pipeline, [*common, *files, *flags])
    assert result.exit_code == 0, result.output
    return configs[0]


def test_without_a_flag_deleted_records_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = started_with([], tmp_path, monkeypatch)
    assert parse_options(source_options(config, tmp_path)).fail_on_data_loss


def test_the_flag_that_the_message_names_continues_behind_deleted_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = re.findall(r"--[a-z-]+", DELETED)
    assert flags, DELETED
    config = started_with(flags, tmp_path, monkeypatch)
    assert not parse_options(source_options(config, tmp_path)).fail_on_data_loss


def test_the_option_that_the_message_names_continues_behind_deleted_records() -> None:
    advised = dict(re.findall(r"(\w+)=(\w+)", DELETED))
    assert advised, DELETED
    options = {"bootstrap": "b:1", "group.id": "g", "subscribe": "t"} | advised
    assert not parse_options(options).fail_on_data_loss


def test_groups_and_logs_show_the_name_of_the_application_unless_the_user_chose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def client_id(*flags: str) -> str:
        config = started_with([*flags], tmp_path, monkeypatch)
        return parse_options(source_options(config, tmp_path / "orders-2")).client.client_id

    assert client_id() == "orders-2"
    assert client_id("--set", "client.id=mine") == "mine"


@pytest.mark.parametrize("name", ["heartbeat.interval.ms", "heartbeat_interval_ms"])
def test_members_send_a_heartbeat_each_quarter_second_unless_the_user_chose_another_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interval_ms(*flags: str) -> int:
        config = started_with([*flags], tmp_path, monkeypatch)
        return parse_options(source_options(config, tmp_path)).client.heartbeat_interval_ms

    assert interval_ms() == 250
    assert interval_ms("--set", f"{name}=3000") == 3_000


@pytest.mark.parametrize("name", ["kohort.member.identity", "kohort_member_identity"])
def test_an_application_is_known_by_its_checkpoint_unless_the_user_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def identity(*flags: str) -> str:
        config = started_with([*flags], tmp_path, monkeypatch)
        options = parse_options(source_options(config, tmp_path / "one"))
        return options.client.kohort_member_identity

    assert identity() == str(tmp_path / "one")
    assert identity("--set", f"{name}=me") == "me"


def test_topics_with_state_are_refused_because_nothing_prepares_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = started_with(["--set", "kohort.stateful.topics=t"], tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=r"kohort\.stateful\.topics has no effect here"):
        parse_options(source_options(config, tmp_path))


def test_two_queries_cannot_choose_one_name_in_the_ledger() -> None:
    """Finding S11: a batch without rows could commit the intended ranges of the other query."""
    options = {"bootstrap": "b:1", "group.id": "g", "subscribe": "t"}
    with pytest.raises(ConfigError, match=r"'mine'.* leave the option out"):
        parse_options(options | {"application": "mine"})
    assert parse_options(options).application != parse_options(options).application
