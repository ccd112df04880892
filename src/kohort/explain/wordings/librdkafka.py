"""Messages of librdkafka about its group: warnings, and the lines of ``debug=cgrp``.

In: nothing. Out: `LIBRDKAFKA`. Must not know: frames, other
programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

LIBRDKAFKA: Final = (
    (Kind.POLL_EXPIRED, "Application maximum poll interval (<limit>ms) exceeded by <over>ms"),
    (
        Kind.SESSION_EXPIRED,
        "Consumer group session timed out (in join-state <state>) after <ms> ms without a "
        "successful response from the group coordinator (broker <node>, last error was <reason>)",
    ),
    (
        Kind.POLL_EXPIRED,
        "Application maximum poll interval (<limit>ms) exceeded by <over>ms…",
    ),
    (
        Kind.SESSION_EXPIRED,
        "Consumer group session timed out (in join-state <state>) after <ms> ms without a "
        "successful response from the group coordinator (broker <node>, last error was <reason>): "
        "revoking…",
    ),
    (Kind.SESSION_EXPIRED, "Consumer group session timed out…"),
    (Kind.POLL_EXPIRED, "Maximum application poll interval (max.poll.interval.ms) exceeded…"),
    (Kind.COMMIT_FAILED, "Offset commit (<why>) failed for <share> partition(s)<reason>"),
    (Kind.COMMIT_FAILED, "failed to commit offset: <reason>"),
    (Kind.WRONG_CALL, 'Group "<group>": application *assign() call failed: <reason>'),
    (Kind.PROGRESS, 'Group "<group>" changed join state <previous> -> <state>'),
    (Kind.LEAVING, 'Group "<group>": leave (in state <state>)'),
    (Kind.PROGRESS, 'Group "<group>": updating member id "<old>" -> "<member>"'),
    (Kind.REQUESTED, 'Group "<group>": Rejoining group with <owned> owned partition(s): <reason>'),
    (Kind.REQUESTED, 'Group "<group>": Rejoining group without an assignment: <reason>'),
    # The end of the member's own work, which is no reason.
    (Kind.REQUESTED, 'Group "<group>": Rejoining group without an assignment: Unassignment done'),
    (
        Kind.JOINING,
        'Joining group "<group>" with <topics> subscribed topic(s) and member id "<member>"',
    ),
    (Kind.PROGRESS, 'Group "<group>": join with <topics> subscribed topic(s)'),
    (
        Kind.JOINED,
        "JoinGroup response: GenerationId <generation>, Protocol <protocol>, LeaderId <leader>, "
        "my MemberId <member>, member metadata count <count>: <reason>",
    ),
    (Kind.PROGRESS, 'Heartbeat for group "<group>" generation id <generation>'),
    # A member that other services than Kafka gave no generation.
    (Kind.PROGRESS, 'Heartbeat for group "<group>" generation id -1'),
    (Kind.HEARTBEAT_REBALANCING, "HeartbeatRequest failed: Broker: Group rebalance in progress…"),
    (
        Kind.HEARTBEAT_REBALANCING,
        'Group "<group>" heartbeat error response in state <state>: Broker: Group rebalance in '
        "progress",
    ),
    (
        Kind.COORDINATOR_LOST,
        'Group "<group>" heartbeat error response in state <state>: Broker: Not coordinator<rest>',
    ),
    (
        Kind.COORDINATOR_LOST,
        'Group "<group>" heartbeat error response in state <state>: Broker: Coordinator <rest>',
    ),
    (
        Kind.COORDINATOR_LOST,
        'Group "<group>" heartbeat error response in state <state>: Local: <reason>',
    ),
    (
        Kind.UNKNOWN_MEMBER,
        'Group "<group>" heartbeat error response in state <state>: Broker: Unknown member<rest>',
    ),
    (
        Kind.UNKNOWN_MEMBER,
        'Group "<group>" heartbeat error response in state <state>: Broker: Specified group '
        "generation id is not valid",
    ),
    (
        Kind.CLIENT_FENCED,
        'Group "<group>" heartbeat error response in state <state>: Broker: Static consumer fenced '
        "by …",
    ),
    (
        Kind.PROGRESS,
        'Group "<group>" heartbeat error response in state <state>: <reason>',
    ),
    # A first join: the coordinator gives the member its id and asks for another join (KIP-394).
    (
        Kind.JOIN_FAILED,
        "JoinGroup response: GenerationId -1, Protocol <protocol>, LeaderId <leader>, my MemberId "
        "<member>, <count> members in group: <reason>",
    ),
    (
        Kind.JOIN_FAILED,
        "JoinGroup response: GenerationId -1, Protocol <protocol>, LeaderId <leader>, my MemberId "
        "<member>, member metadata count <count>: <reason>",
    ),
    (Kind.REVOKED, 'Group "<group>": delegating revoke of <count> partition(s) to application…'),
    (Kind.ADDED, 'Group "<group>": delegating assign of <count> partition(s) to application…'),
    (Kind.UNSUPPORTED, "ConsumerGroupHeartbeat fatal error: <reason>"),
    (Kind.PROGRESS, "OffsetCommit for <count> partition(s): <why>: returned: <reason>"),
    (Kind.LOST, 'Group "<group>": current assignment of <count> partition(s) lost: <reason>'),
    (Kind.PROGRESS, 'Group "<group>": current assignment no longer considered lost: <reason>'),
    (Kind.PROGRESS, 'Group "<group>" changed state <previous> -> <state>'),
    (Kind.COORDINATOR_FOUND, 'Group "<group>" coordinator is <node>'),
    (Kind.PROGRESS, 'Group "<group>" coordinator set to broker <node>'),
    (Kind.PROGRESS, 'Group "<group>" broker <node> is no longer coordinator'),
    (Kind.COORDINATOR_LOST, 'Group "<group>": marking the coordinator (<node>) dead: <reason>'),
    (Kind.COORDINATOR_FOUND, 'Group "<group>" changing coordinator <old> -> <node>'),
    (Kind.PROGRESS, 'Group "<group>": querying for coordinator: <reason>'),
    (Kind.PROGRESS, 'Group "<group>": no broker available for coordinator query: <reason>'),
    (Kind.PROGRESS, 'Group "<group>": unable to send coordinator query: <reason>'),
    (Kind.PROGRESS, 'Group "<group>" FindCoordinator response error: <reason>'),
    (Kind.PROGRESS, "LeaveGroup response received in state <state>"),
    (Kind.PROGRESS, "LeaveGroup response error in state <state>: <reason>"),
    (Kind.LEAVING, "Leaving group"),
    (
        Kind.REVOKED,
        'Group "<group>": delegating incremental revoke of <count> partition(s) to application…',
    ),
    (
        Kind.ADDED,
        'Group "<group>": delegating incremental assign of <count> partition(s) to application…',
    ),
    (Kind.REQUESTED, 'Group "<group>": Joining group with <owned> owned partition(s): <reason>'),
    (Kind.REQUESTED, 'Group "<group>": Joining group without an assignment: <reason>'),
    (Kind.REQUESTED, 'Group "<group>": Rejoining group: <reason>'),
    (
        Kind.REQUESTED,
        'Group "<group>" (re)joining in join-state <state> with <owned> assigned partition(s): '
        "<reason>",
    ),
    (
        Kind.REQUESTED,
        'Group "<group>": subscription updated from metadata change: rejoining group…',
    ),
    (Kind.PROGRESS, 'Group "<group>": Not rejoining group<rest>: no subscribed topics'),
    (Kind.PROGRESS, 'Group "<group>": Not joining group<rest>: no subscribed topics'),
    (
        Kind.PROGRESS,
        'Group "<group>": Partitions owned by members: <owned>, partitions assigned by assignor: '
        "<count>",
    ),
    (Kind.PROGRESS, 'Group "<group>": COOPERATIVE protocol collection sizes: <plan>'),
    (Kind.PROGRESS, 'Group "<group>": <count> partitions assigned to consumers'),
    (Kind.JOIN_FAILED, 'Group "<group>": synchronization failed: <reason>: rejoining'),
    (Kind.JOIN_FAILED, 'Group "<group>": synchronization failed: <reason>'),
    (Kind.JOIN_FAILED, 'Group "<group>" synchronization failed: <reason>'),
    (Kind.PROGRESS, "SyncGroup response: <reason> (<count> bytes of MemberState data)"),
    (Kind.PROGRESS, 'Group "<group>": "<assignor>" assignor run for <count> member(s)'),
    (
        Kind.PROGRESS,
        'Group "<group>": failed to run assignor "<assignor>" for <count> member(s): <reason>',
    ),
    (Kind.PROGRESS, 'I am elected leader for group "<group>" with <members> member(s)'),
    (
        Kind.JOINED,
        "JoinGroup response: GenerationId <generation>, Protocol <protocol>, LeaderId <leader>, "
        "my MemberId <member>, <count> members in group: <reason>",
    ),
    (Kind.PROGRESS, 'Group "<group>": postponing join until up-to-date metadata …'),
    (
        Kind.PROGRESS,
        'Group "<group>": effective subscription list changed from <old> to <topics> topic(s):',
    ),
    (
        Kind.PROGRESS,
        'Group "<group>": subscribe to new subscription of <topics> topics (join-state <state>)',
    ),
    (
        Kind.PROGRESS,
        'Group "<group>": subscribe to new <kind>subscription of <topics> topics (join state '
        "<state>)",
    ),
    (Kind.PROGRESS, 'Group "<group>": unsubscribe from current <kind>subscription of <count> …'),
    (Kind.PROGRESS, 'Group "<group>": resetting group leader info: <reason>'),
    (
        Kind.HEARTBEAT_REBALANCING,
        'Group "<group>" heartbeat error response in state <state> (join-state <join>, <count> '
        "partition(s) assigned): Broker: Group rebalance in progress",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        'Group "<group>" heartbeat error response in state <state> (join-state <join>, <count> '
        "partition(s) assigned): Broker: Unknown member",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        'Group "<group>" heartbeat error response in state <state> (join-state <join>, <count> '
        "partition(s) assigned): Broker: Specified group generation id is not valid",
    ),
    (
        Kind.COORDINATOR_LOST,
        "Heartbeat failed due to coordinator (<node>) no longer available: <reason>: re-querying "
        "for coordinator",
    ),
    (Kind.PROGRESS, "Heartbeat response: discarding outdated request (now in join-state <state>)"),
    (Kind.PROGRESS, 'Group "<group>": add <topic> [<count>]'),
    (Kind.PROGRESS, 'Group "<group>": delete <topic> [<count>]'),
    (Kind.PROGRESS, 'Group "<group>": unassign done in state <state> (join-state <join>)'),
    (Kind.PROGRESS, 'Group "<group>": unassign done in state <state> (join state <join>)…'),
    (
        Kind.PROGRESS,
        'Group "<group>": assignment operations done in join-state <join> (rebalance '
        "rejoin=<again>)",
    ),
    (
        Kind.PROGRESS,
        'Group "<group>": assignment operations done in join state <join> (rebalance '
        "rejoin=<again>)",
    ),
    (Kind.PROGRESS, 'Group "<group>": new assignment of <count> partition(s) in join-state <join>'),
    (Kind.PROGRESS, 'Group "<group>": new assignment of <count> partition(s) in join state <join>'),
    (
        Kind.PROGRESS,
        'Group "<group>": incremental assignment: <added> newly added, <revoked> revoked '
        "partitions…",
    ),
    (Kind.PROGRESS, 'Group "<group>": setting group assignment to <count> partition(s)'),
    (Kind.PROGRESS, 'Group "<group>": clearing group assignment'),
    (
        Kind.PROGRESS,
        'Group "<group>": <count> partition(s) being added to group assignment of <owned> '
        "partition(s)",
    ),
    (
        Kind.PROGRESS,
        'Group "<group>": <count> partition(s) being removed from group assignment of <owned> '
        "partition(s)",
    ),
    (
        Kind.PROGRESS,
        'Group "<group>": skipping COOPERATIVE rebalance in state <state> (join-state '
        "<join>)<rest>",
    ),
    (
        Kind.PROGRESS,
        'Group "<group>": rebalance (<protocol>) already in progress, skipping in state <state> '
        "(join-state <join>) with <rest>",
    ),
    (
        Kind.REVOKED,
        'Group "<group>" initiating rebalance (<protocol>) in state <state> (join-state <join>) '
        "with <owned> assigned partition(s)<rest>: <reason>",
    ),
    (
        Kind.REVOKED,
        'Group "<group>" is rebalancing (<protocol>) in state <state> (join-state <join>) with '
        "<owned> assigned partition(s)<rest>: <reason>",
    ),
    (
        Kind.REVOKED,
        'Group "<group>" is rebalancing in state <state> (join-state <join>) with assignment: '
        "<reason>",
    ),
    (
        Kind.REVOKED,
        'Group "<group>" is rebalancing in state <state> (join-state <join>) without assignment: '
        "<reason>",
    ),
    (Kind.PROGRESS, 'Group "<group>": revoking all <count> partition(s)<rest>'),
    (Kind.PROGRESS, 'Group "<group>" revoking <count> of <owned> partition(s)'),
    (Kind.PROGRESS, 'Group "<group>": consumer is terminating, skipping rejoin'),
    (Kind.PROGRESS, 'Terminating group "<group>" in state <state> with <count> partition(s)'),
    (
        Kind.PROGRESS,
        'Group "<group>" received op <operation> in state <state> (join-state <join>)<rest>',
    ),
    (
        Kind.PROGRESS,
        'Group "<group>" received op <operation> (v<count>) in state <state> (join-state <join>, '
        "v<version> vs <other>)",
    ),
    (Kind.PROGRESS, 'Group "<group>": waiting for <what> remaining …'),
    (Kind.PROGRESS, 'Group "<group>" is terminating, initiating full unassign'),
    (Kind.COMMIT_FAILED, 'Group "<group>": unable to OffsetCommit in state <state>: <reason>'),
    (
        Kind.PROGRESS,
        "Committing offsets for <count> partition(s) with generation-id <generation> in "
        "join-state <join>: <why>",
    ),
    (
        Kind.PROGRESS,
        "OffsetCommit for <count> partition(s) in join-state <join>: <why>: returned: <reason>",
    ),
    (Kind.PROGRESS, 'Group "<group>": not committing assigned offsets: assignment lost'),
    (
        Kind.PROGRESS,
        'ConsumerGroupHeartbeat response received for member id "<member>" with epoch <epoch>',
    ),
    (Kind.PROGRESS, 'ConsumerGroupHeartbeat received target assignment "<plan>"'),
    (
        Kind.PROGRESS,
        'ConsumerGroupHeartbeat of member id "<member>", group id "<group>", generation id '
        "<generation>, …",
    ),
    (Kind.JOIN_FAILED, "ConsumerGroupHeartbeat failed: <reason>"),
    (Kind.PROGRESS, 'Target assignment acked, new current assignment  "<plan>"'),
    (Kind.COORDINATOR_LOST, "ConsumerGroupHeartbeat failed due to coordinator (<node>) <reason>"),
    (Kind.UNKNOWN_MEMBER, "ConsumerGroupHeartbeat failed due to: <reason>: will rejoin the group"),
    *(
        (Kind.COORDINATOR_LOST, f"[thrd:GroupCoordinator]: GroupCoordinator<id>: {failure}")
        for failure in (
            "<node>: Disconnected<reason>",
            "<node>: Connect to <address> failed: <reason>",
            "<node>: Connection setup timed out<reason>",
            "<node>: Failed to <reason>",
            "<node>: Receive failed: <reason>",
            "<node>: Send failed: <reason>",
            "<node>: <count> request(s) timed out: <reason>",
            "<node>: Timed out <request> in flight <reason>",
            "<count> request(s) timed out: <reason>",
            "Timed out <request> in flight <reason>",
            "Disconnected<reason>",
        )
    ),
    # Errors that a callback of the application prints.
    (Kind.COORDINATOR_LOST, "GroupCoordinator: <count> request(s) timed out: <reason>"),
    (Kind.COORDINATOR_LOST, "GroupCoordinator: Disconnected<reason>"),
    # Requests, answers and states of the connection, with debug=protocol or debug=broker.
    (Kind.PROGRESS, "[thrd:GroupCoordinator]: GroupCoordinator<id>: …"),
    (Kind.PROGRESS, "[thrd:GroupCoordinator]: Broadcasting state change"),
    (Kind.PROGRESS, "Sent GroupCoordinatorRequest …"),
    (Kind.PROGRESS, "Received GroupCoordinatorResponse …"),
    (Kind.PROGRESS, "Received FindCoordinatorResponse …"),
    (
        Kind.HEARTBEAT_REBALANCING,
        "[thrd:main]: Heartbeat failed: REBALANCE_IN_PROGRESS: <reason>",
    ),
    (Kind.JOIN_FAILED, "SyncGroupRequest failed: <reason>: actions <actions>"),
    (Kind.REVOKED, 'Group "<group>": group is rebalancing<rest>: <reason>'),
)
