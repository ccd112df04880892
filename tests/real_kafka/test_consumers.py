"""The same groups of kohort's consumers on a real Apache Kafka."""

from __future__ import annotations

import pytest
from tests.client import columns, pieces, refusals

from kohort.testing.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.real_kafka]


def test_members_come_and_go_and_no_record_is_lost_or_repeated(real_kafka: RealKafka) -> None:
    pieces.members_come_and_go(real_kafka.bootstrap_servers)


def test_a_rebalance_that_is_held_open_stops_only_what_moves(real_kafka: RealKafka) -> None:
    pieces.only_what_moves_stops(real_kafka.bootstrap_servers)


def test_restarts_of_static_members_do_not_affect_other_members(real_kafka: RealKafka) -> None:
    pieces.static_members_bounce(real_kafka.bootstrap_servers)


def test_an_enforced_rebalance_is_one_generation_and_revokes_nothing(real_kafka: RealKafka) -> None:
    pieces.rebalances_are_enforced(real_kafka.bootstrap_servers)


def test_a_pause_lasts_through_rebalances_for_partitions_that_stay(real_kafka: RealKafka) -> None:
    pieces.pauses_stay(real_kafka.bootstrap_servers)


def test_columns_equal_the_records_of_poll_for_each_codec(real_kafka: RealKafka) -> None:
    columns.columns_equal_records(real_kafka.bootstrap_servers)


def test_columns_skip_the_records_of_aborted_transactions(real_kafka: RealKafka) -> None:
    columns.aborted_records_are_skipped(real_kafka.bootstrap_servers)


def test_columns_notice_a_log_that_was_cut(real_kafka: RealKafka) -> None:
    columns.a_position_of_a_lost_epoch_is_out_of_range(real_kafka.bootstrap_servers)


@refusals.each_kind
def test_an_unknown_topic_is_told(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture, kind: refusals.Kind
) -> None:
    address = real_kafka.bootstrap_servers
    refusals.an_unknown_topic_is_told_and_read_once_it_exists(address, caplog, kind)


@refusals.each_kind
def test_refusals_of_the_coordinator_are_told(real_kafka: RealKafka, kind: refusals.Kind) -> None:
    refusals.refusals_of_the_coordinator_are_told(real_kafka.bootstrap_servers, kind)


@refusals.each_kind
def test_a_fenced_member_is_told(real_kafka: RealKafka, kind: refusals.Kind) -> None:
    refusals.a_fenced_member_is_told(real_kafka.bootstrap_servers, kind)
