"""API key 18, ApiVersions: a broker's APIs and versions; the first request of a connection.

The response's header never has tagged fields, whatever the version: the client cannot know yet
what the broker understands. A version that the broker does not have is answered in version 0's
layout with UNSUPPORTED_VERSION.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | flexible; name and version of the software (KIP-511) | flexible body; features (KIP-584) |
| 4 | | features may start at 0 (KIP-1022) |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@request(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Request the broker's APIs and versions; names the client's software."""

    client_software_name: str = field(STRING, versions="3+", ignorable=True)
    client_software_version: str = field(STRING, versions="3+", ignorable=True)


@struct()
class ApiVersion:
    """An API and its range."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct()
class SupportedFeatureKey:
    """A feature the broker could run."""

    name: str = field(STRING, versions="3+")
    min_version: int = field(INT16, versions="3+")
    max_version: int = field(INT16, versions="3+")


@struct()
class FinalizedFeatureKey:
    """A feature the cluster runs."""

    name: str = field(STRING, versions="3+")
    max_version_level: int = field(INT16, versions="3+")
    min_version_level: int = field(INT16, versions="3+")


@response(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The APIs with their ranges."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), versions="3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(INT64, versions="3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), versions="3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(BOOL, versions="3+", tag=3, ignorable=True)
