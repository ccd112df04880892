"""The dispatcher hands each request of the broker's own to its handler.

In: requests that are not the coordinator's. Out: answers through the broker loop, now or later.
Must not know: the meaning of a request, which is in ``handlers``, ``producing`` and ``fetching``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from kohort.broker.broker_loop import BrokerLoop
from kohort.broker.deleting import DeletingRecords
from kohort.broker.fetching import Call, Fetching
from kohort.broker.handlers import cluster, configs, offsets, topics
from kohort.broker.producing import Producing, has_errors
from kohort.broker.session import Session
from kohort.broker.state import BrokerState
from kohort.engine.coordinator_outputs import Handle
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant
from kohort.wire.apis import announced
from kohort.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from kohort.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

logger = logging.getLogger(__name__)

PRODUCE: Final = 0
FETCH: Final = 1
DELETE_RECORDS: Final = 21
NO_ACKS: Final = 0

Handler = Callable[[BrokerState, Any, int], Any]
"""Looks at the node that was asked, a request and its version; returns the response at once."""


def api_versions(
    state: BrokerState, request: ApiVersionsRequest, version: int
) -> ApiVersionsResponse:
    """The supported APIs. The wire room answers an unsupported version."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in announced()
        ]
    )


HANDLERS: Final[dict[int, Handler]] = {
    2: offsets.list_offsets,
    3: cluster.metadata,
    10: cluster.find_coordinator,
    18: api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    22: offsets.init_producer_id,
    23: offsets.offset_for_leader_epoch,
    32: configs.describe_configs,
    33: configs.alter_configs,
    37: topics.create_partitions,
    44: configs.incremental_alter_configs,
    60: cluster.describe_cluster,
}


class Dispatcher:
    """Answers the requests that are not the coordinator's, through ``BrokerLoop.answer``."""

    def __init__(
        self,
        broker_loop: BrokerLoop,
        producing: Producing,
        fetching: Fetching,
        deleting: DeletingRecords,
    ) -> None:
        self._broker_loop = broker_loop
        self._producing = producing
        self._fetching = fetching
        self._deleting = deleting

    def serve(self, session: Session, request: Handle, now: Instant) -> None:
        """Answer a request, or park it."""
        key, version, node = request.header.api_key, request.header.api_version, session.node
        if key == FETCH:
            answer = functools.partial(self._broker_loop.answer, request)
            self._fetching.serve(Call(node, request.conn, request.request, version, answer), now)
        elif key == PRODUCE:
            produced = functools.partial(self._produced, session, request)
            self._producing.serve(node, request.request, now, produced)
        elif key == DELETE_RECORDS:
            answer = functools.partial(self._broker_loop.answer, request)
            self._deleting.serve(node, request.request, answer)
        else:
            handler = HANDLERS[key]
            response = handler(node, request.request, version)
            self._broker_loop.answer(request, response)

    def _produced(self, session: Session, request: Handle, response: ProduceResponse) -> None:
        asked: ProduceRequest = request.request
        if asked.acks != NO_ACKS:
            self._broker_loop.answer(request, response)
            return
        self._broker_loop.answer(request, None)
        if has_errors(response):
            # Nobody reads an answer to acks=0, so the broken connection is the only news there is.
            logger.info("closing connection of %s: refused with acks=0", session.peer_host)
            session.close()

    def settle(self, now: Instant) -> None:
        """Answer the fetches that this turn has made ready."""
        self._fetching.settle()

    def lost(self, conn: ConnectionId) -> None:
        """Forget what is parked for a connection."""
        self._fetching.lost(conn)
