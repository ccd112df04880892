"""API key 32, DescribeConfigs: settings of topics (resource type 2) and brokers (4).

| version | request | response |
|---|---|---|
| 1 | asks for synonyms (KIP-226) | where a setting comes from, synonyms |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | asks for documentation (KIP-569) | type and documentation |
| 4 | flexible (KIP-482) | flexible |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class DescribeConfigsResource:
    """A resource; None asks for all of its settings."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable="0+", default=None)


@request(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Ask for settings."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL)
    include_documentation: bool = field(BOOL, versions="3+")


@struct()
class DescribeConfigsSynonym:
    """A place where the setting could come from."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+", default=None)
    source: int = field(INT8)


@struct()
class DescribeConfigsResourceResult:
    """A setting."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+", default=None)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym))
    config_type: int = field(INT8, versions="3+", ignorable=True)
    documentation: str | None = field(
        STRING, versions="3+", nullable="0+", default=None, ignorable=True
    )


@struct()
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


@response(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """The settings by resource."""

    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
