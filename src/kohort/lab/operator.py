"""An operator who asks the coordinator of a world for ListGroups and DescribeGroups.

In: a node and a group. Out: a fact with the answers, for the checker to compare. Must not know: the
state of the coordinator.
"""

from __future__ import annotations

from typing import Final

from kohort.lab.node import Node
from kohort.model.errors import ErrorCode
from kohort.model.ids import GroupId, MemberId, ProtocolName
from kohort.model.world_facts import GroupDescribed
from kohort.wire.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kohort.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

_LIST_VERSION: Final = 5
_DESCRIBE_VERSION: Final = 5
_DEAD: Final = "Dead"


def describe(node: Node, group_id: GroupId) -> None:
    """Ask for one group, and record the answers unless the coordinator is still loading."""
    listed = node.ask(ListGroupsRequest(), _LIST_VERSION, ListGroupsResponse)
    described = node.ask(
        DescribeGroupsRequest(groups=[group_id]), _DESCRIBE_VERSION, DescribeGroupsResponse
    )
    if listed is None or described is None or listed.error_code:
        return
    (group,) = described.groups
    if group.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        return
    states = [each.group_state for each in listed.groups if each.group_id == group_id]
    node.tell(
        GroupDescribed(
            group_id=group_id,
            listed_state=states[0] if states else None,
            state=None if group.group_state == _DEAD else group.group_state,
            protocol_name=ProtocolName(group.protocol_data),
            assignments=tuple(
                (MemberId(m.member_id), bytes(m.member_assignment)) for m in group.members
            ),
        )
    )
