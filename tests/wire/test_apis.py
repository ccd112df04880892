"""The table of APIs: announced and handled versions."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.wire.oracles import declared

from kohort.model.errors import ProtocolError
from kohort.schema import VersionRange
from kohort.schema.declare import layout_of
from kohort.wire.apis import APIS, BY_NAME, Api, announced, api_of

# The announcement of a broker with these features: the reference table of the coordinator's
# protocol, topic ids, and the administration of topics.
ANNOUNCED = """
    0:0-9 1:4-18 2:1-7 3:0-13 8:2-10 9:1-10 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 18:0-4
    19:2-7 20:1-6 21:0-2 22:0-4 23:2-4 32:1-4 33:0-2 37:0-3 42:0-2 44:0-1 47:0-0 60:0-1
"""


def test_the_broker_announces_the_intended_versions() -> None:
    assert [f"{key}:{low}-{high}" for key, low, high in announced()] == ANNOUNCED.split()


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_both_message_classes_exist_for_every_version_of_either_side(api: Api) -> None:
    for cls, is_request in ((api.request, True), (api.response, False)):
        layout = layout_of(cls)
        assert layout.api_key == api.key
        assert layout.is_request is is_request
        assert layout.versions == declared(api)
        assert layout.name == api.name + ("Request" if is_request else "Response")


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_the_broker_handles_no_version_that_is_not_declared(api: Api) -> None:
    assert api.broker.low <= api.handled.low <= api.client.high
    assert api.broker.high == api.handled.high


# First flexible version of each API, for request and response (KIP-482 and later KIPs).
FLEXIBLE_FROM = {
    "Produce": 9, "Fetch": 12, "ListOffsets": 6, "Metadata": 9, "OffsetCommit": 8,
    "OffsetFetch": 6, "FindCoordinator": 3, "JoinGroup": 6, "Heartbeat": 4, "LeaveGroup": 4,
    "SyncGroup": 4, "DescribeGroups": 5, "ListGroups": 3, "ApiVersions": 3, "CreateTopics": 5,
    "DeleteTopics": 4, "InitProducerId": 2, "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4,
    "CreatePartitions": 2, "DeleteGroups": 2, "DescribeCluster": 0, "DeleteRecords": 2,
    "AlterConfigs": 2, "IncrementalAlterConfigs": 1, "SaslAuthenticate": 2,
    "ConsumerGroupDescribe": 0,
}  # fmt: skip


def test_flexible_versions_begin_where_the_protocol_says() -> None:
    for api in APIS:
        for cls in (api.request, api.response):
            flexible = layout_of(cls).flexible
            first = FLEXIBLE_FROM.get(api.name)
            assert flexible == (VersionRange(0, -1) if first is None else (first, 32_767)), cls


def test_unknown_keys_are_protocol_errors() -> None:
    assert api_of(12) is BY_NAME["Heartbeat"]
    with pytest.raises(ProtocolError, match="71"):
        api_of(71)


def test_importing_wire_loads_no_message_and_compiles_nothing() -> None:
    program = """
import sys
import kohort, kohort.wire, kohort.wire.apis, kohort.wire.codec
loaded = [name for name in sys.modules if name.startswith("kohort.wire.messages.")]
assert not loaded, loaded
from kohort.wire.apis import BY_NAME
cls = BY_NAME["Heartbeat"].request
loaded = [name for name in sys.modules if name.startswith("kohort.wire.messages.")]
assert loaded == ["kohort.wire.messages.k12_heartbeat"], loaded
assert cls.__codecs__ == {}, cls.__codecs__
from kohort.schema import decode, encode
decode(cls, 4, encode(cls(), 4))
assert sorted(version for _, version in cls.__codecs__) == [4, 4], cls.__codecs__
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
