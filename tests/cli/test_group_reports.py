"""Groups that brokers list and do not describe as consumer groups."""

from __future__ import annotations

from typing import cast

import pytest

from kohort.cli.groups.reports import described
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupDescription, GroupListing
from kohort.model.errors import ConfigError


class Cluster:
    """The answers of a broker with one share group."""

    def describe_group(self, group_id: str) -> GroupDescription:
        return GroupDescription(
            group_id=group_id,
            state="Dead",
            protocol_type="",
            protocol_name="",
            coordinator_id=1,
            members=(),
        )

    def list_groups(self) -> list[GroupListing]:
        return [GroupListing(group_id="s", protocol_type="share", state="Stable", type="share")]


@pytest.mark.parametrize(
    ("group", "says"),
    [("s", "is not a consumer group, but a share group"), ("x", "does not exist")],
)
def test_a_group_that_is_no_consumer_group_is_told_from_one_that_does_not_exist(
    group: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        described(cast("Admin", Cluster()), [group])
