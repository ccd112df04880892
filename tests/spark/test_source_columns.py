"""The columns of ``format("kohort")``: all but the headers, unless an option names them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.fetch.columns import WITH_HEADERS
from kohort.model.errors import ConfigError
from kohort.spark.source.data_source import KohortDataSource
from kohort.spark.source.options import RECORD_COLUMNS

GIVEN = {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "g", "subscribe": "t"}


def schema(**options: str) -> str:
    return KohortDataSource(GIVEN | options).schema()


def test_the_schema_has_the_chosen_columns_in_their_order() -> None:
    usual = (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, "
        "`timestamp` timestamp, `timestampType` int"
    )
    assert schema() == usual
    headers = ", `headers` array<struct<key: string, value: binary>>"
    assert schema(includeHeaders="true") == usual + headers
    assert schema(columns="offset, VALUE ,timestamptype") == (
        "`offset` bigint, `value` binary, `timestampType` int"
    )
    assert schema(columns="key,headers", includeHeaders="true") == "`key` binary" + headers
    assert tuple(RECORD_COLUMNS) == WITH_HEADERS


@pytest.mark.parametrize("columns", ["", "values", "key,,value", "key,KEY", "key;value", "*"])
def test_columns_that_no_record_has_are_refused(columns: str) -> None:
    with pytest.raises(ConfigError, match=r"expected some of key, value, .*, headers, each once"):
        schema(columns=columns)


def test_headers_that_are_asked_for_and_left_out_are_refused() -> None:
    with pytest.raises(ConfigError, match="name headers in columns, or leave includeHeaders out"):
        schema(columns="key", includeHeaders="true")
