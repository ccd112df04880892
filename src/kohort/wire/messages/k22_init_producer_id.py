"""API key 22, InitProducerId: an idempotent producer gets its id and epoch.

| version | request | response |
|---|---|---|
| 1 | | throttling happens after the answer (KIP-219) |
| 2 | flexible (KIP-482) | flexible |
| 3 | present producer id and epoch, to go on from (KIP-360) | |
| 4 | | PRODUCER_FENCED may be answered (KIP-588) |
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    field,
    request,
    response,
)


@request(api_key=22, versions="0-4", flexible="2+")
class InitProducerIdRequest:
    """Ask for a producer id; without a transactional id it is only idempotent."""

    transactional_id: str | None = field(STRING, nullable="0+", default=None)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, versions="3+", default=-1)
    producer_epoch: int = field(INT16, versions="3+", default=-1)


@response(api_key=22, versions="0-4", flexible="2+")
class InitProducerIdResponse:
    """The producer's id and epoch."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
