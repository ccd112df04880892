"""API key 44, IncrementalAlterConfigs: change single settings of resources.

| version | request | response |
|---|---|---|
| 0 | | (KIP-339) |
| 1 | flexible (KIP-482) | flexible |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT8,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)
from kohort.wire.messages.k33_alter_configs import AlterConfigsResourceResponse


@struct()
class AlterableConfig:
    """A setting and its change: 0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable="0+")


@struct()
class AlterConfigsResource:
    """A resource (topic or broker) and its changes."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@request(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Change settings, or only check whether that is possible."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@response(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One result for each resource."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
