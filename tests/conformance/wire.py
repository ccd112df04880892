"""All scenarios over the wire: importing this registers every one of them."""

from __future__ import annotations

from tests.conformance import (
    wire_beyond,
    wire_checks,
    wire_clients,
    wire_joining,
    wire_liveness,
    wire_offsets,
    wire_rejoining,
    wire_restarts,
    wire_static,
    wire_syncing,
    wire_views,
    wire_windows,
)
from tests.conformance.registry import SCENARIOS, Scenario

MODULES = (
    wire_beyond,
    wire_checks,
    wire_clients,
    wire_joining,
    wire_liveness,
    wire_offsets,
    wire_rejoining,
    wire_restarts,
    wire_static,
    wire_syncing,
    wire_views,
    wire_windows,
)

ALL: list[Scenario] = [SCENARIOS[number] for number in sorted(SCENARIOS)]
