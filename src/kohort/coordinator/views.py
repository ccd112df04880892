"""DescribeGroups and ListGroups.

In: the two requests. Out: values that do not change with the group. Must not know: how groups
change. Everything that Kafka hides outside Stable (the protocol, members' metadata) is hidden here,
too.
"""

from __future__ import annotations

from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    DescribeAnswer,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    ListAnswer,
    ListedGroup,
    ListGroups,
)
from kohort.coordinator.registry import Registry
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.ids import GroupId, ProtocolName, ProtocolType

GROUP_TYPE = "classic"


def describe(registry: Registry, event: DescribeGroups) -> None:
    """Serve a DescribeGroups."""
    groups = tuple(_described(registry, group_id, event) for group_id in event.group_ids)
    registry.respond(
        event.token, DescribeAnswer(groups=groups, with_operations=event.with_operations)
    )


def _described(registry: Registry, group_id: GroupId, event: DescribeGroups) -> DescribedGroup:
    if registry.loading:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return DescribedGroup(group_id=group_id, error=error, state=None)
    group = registry.groups.get(group_id)
    if group is None:
        if not event.knows_group_id_not_found:
            return DescribedGroup(group_id=group_id)
        return DescribedGroup(
            group_id=group_id,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            message=f"Group {group_id} not found.",
        )
    return describe_group(group)


def describe_group(group: Group) -> DescribedGroup:
    """One group in full."""
    shown = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or ProtocolType(""),
        protocol_name=shown or ProtocolName(""),
        members=tuple(
            DescribedMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                metadata=m.metadata_for(shown) if shown is not None else b"",
                assignment=m.assignment,
            )
            for m in group.members.values()
        ),
    )


def list_groups(registry: Registry, event: ListGroups) -> None:
    """Serve a ListGroups. An unknown word in a filter matches no group."""
    if registry.loading:
        registry.respond(event.token, ListAnswer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    states = {state.lower() for state in event.states}
    types = {kind.lower() for kind in event.types}
    groups = tuple(
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or ProtocolType(""),
            state=group.state,
        )
        for group in registry.groups.values()
        if (not states or group.state.lower() in states) and (not types or GROUP_TYPE in types)
    )
    registry.respond(event.token, ListAnswer(groups=groups))
