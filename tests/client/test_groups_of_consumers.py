"""Groups of kohort's consumers on the embedded broker."""

from __future__ import annotations

import pytest
from tests.client import pieces

from kohort.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.slow


def test_members_come_and_go_and_no_record_is_lost_or_repeated(
    kohort_broker: EmbeddedBroker,
) -> None:
    pieces.members_come_and_go(kohort_broker.bootstrap_servers)


def test_a_rebalance_that_is_held_open_stops_only_what_moves(
    kohort_broker: EmbeddedBroker,
) -> None:
    pieces.only_what_moves_stops(kohort_broker.bootstrap_servers)


def test_static_members_bounce_and_other_members_notice_nothing(
    kohort_broker: EmbeddedBroker,
) -> None:
    pieces.static_members_bounce(kohort_broker.bootstrap_servers)


def test_an_enforced_rebalance_is_one_generation_and_revokes_nothing(
    kohort_broker: EmbeddedBroker,
) -> None:
    pieces.rebalances_are_enforced(kohort_broker.bootstrap_servers)


def test_a_pause_lasts_through_rebalances_for_partitions_that_stay(
    kohort_broker: EmbeddedBroker,
) -> None:
    pieces.pauses_stay(kohort_broker.bootstrap_servers)
