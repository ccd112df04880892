"""API key 33, AlterConfigs: replace all settings of resources.

| version | request | response |
|---|---|---|
| 0 | | (KIP-133) |
| 1 | | throttling happens after the answer (KIP-219) |
| 2 | flexible (KIP-482) | flexible |

Clients of Kafka 2.3 and later change single settings instead (IncrementalAlterConfigs, key 44).
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
class AlterableConfig:
    """A setting and its value."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


@struct()
class AlterConfigsResource:
    """A resource (topic or broker) and all its settings."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@request(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replace settings, or only check whether that is possible."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@struct()
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@response(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One result for each resource."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
