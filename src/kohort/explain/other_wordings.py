"""Messages of franz-go, sarama, KafkaJS and brod about their groups.

In: nothing. Out: a table for each program. Must not know: frames,
other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

FRANZ_GO: Final = (
    (
        Kind.JOINED,
        "joined, balancing group; group: <group>, member_id: <member>, instance_id: <instance>, "
        "generation: <generation>, …",
    ),
    (
        Kind.JOINED,
        "joined; group: <group>, member_id: <member>, instance_id: <instance>, generation: "
        "<generation>, …",
    ),
    (Kind.JOINING, "joining group; group: <group>"),
    (Kind.JOIN_FAILED, "join group failed; group: <group>, err: <reason>"),
    (Kind.JOIN_FAILED, "sync group failed; group: <group>, err: <reason>"),
    (Kind.SYNCED, "synced; group: <group>, assigned: <partitions>"),
    (Kind.HEARTBEAT_REBALANCING, "heartbeat errored; group: <group>, err: REBALANCE_IN_PROGRESS…"),
    (Kind.UNKNOWN_MEMBER, "heartbeat errored; group: <group>, err: UNKNOWN_MEMBER_ID…"),
    (Kind.LEAVING, "leaving group; group: <group>, …"),
    (
        Kind.JOINED,
        "joined as leader but unable to balance group due to KIP-345 limitations; group: <group>, "
        "member_id: <member>, instance_id: <instance>, generation: <generation>, …",
    ),
    (Kind.PROGRESS, "beginning to manage the group lifecycle; group: <group>"),
    (Kind.PROGRESS, "beginning autocommit loop; group: <group>"),
    (Kind.PROGRESS, "beginning heartbeat loop; group: <group>"),
    (Kind.PROGRESS, "heartbeating; group: <group>"),
    (Kind.PROGRESS, "heartbeat complete; group: <group>, err: <reason>"),
    (Kind.PROGRESS, "syncing; group: <group>, protocol_type: <type>, protocol: <protocol>"),
    (Kind.JOIN_FAILED, "sync failed with RebalanceInProgress, rejoining; group: <group>"),
    (
        Kind.PROGRESS,
        "join returned MemberIDRequired, rejoining with response's MemberID; group: <group>, "
        "member_id: <member>",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        "join returned UnknownMemberID, rejoining without a member id; group: <group>",
    ),
    (
        Kind.REVOKED,
        "eager consumer revoking prior assigned partitions; group: <group>, revoking: <partitions>",
    ),
    (
        Kind.REVOKED,
        "cooperative consumer revoking prior assigned partitions because leaving group; group: "
        "<group>, revoking: <partitions>",
    ),
    (
        Kind.REVOKED,
        "cooperative consumer calling onRevoke; group: <group>, lost: <partitions>, stage: <stage>",
    ),
    (Kind.LOST, "cooperative consumer calling onLost; group: <group>, lost: <partitions>, <rest>"),
    (
        Kind.LOST,
        "eager consumer calling onLost on prior assigned partitions; group: <group>, <rest>",
    ),
    (Kind.PROGRESS, "consumer calling onRevoke at the end of a session<rest>; group: <group>"),
    (
        Kind.REVOKED,
        "calling onRevoke at the end of a session; group: <group>, lost: <partitions>, stage: "
        "<stage>",
    ),
    (Kind.PROGRESS, "new group session begun; group: <group>, added: <added>, lost: <partitions>"),
    (Kind.JOIN_FAILED, "group manage loop errored; group: <group>, err: <reason>, …"),
    (Kind.COORDINATOR_LOST, "heartbeat hit retryable error, retrying; group: <group>, …"),
    (
        Kind.COORDINATOR_LOST,
        "heartbeat hit retryable error, max retries reached; group: <group>, …",
    ),
    (
        Kind.HEARTBEAT_REBALANCING,
        "heartbeat saw a change in group status; partitions were added or lost; group: <group>",
    ),
    (Kind.UNKNOWN_MEMBER, "heartbeat errored; group: <group>, err: ILLEGAL_GENERATION…"),
    (Kind.CLIENT_FENCED, "heartbeat errored; group: <group>, err: FENCED_INSTANCE_ID…"),
    (Kind.COORDINATOR_LOST, "heartbeat errored; group: <group>, err: <reason>"),
    (
        Kind.PROGRESS,
        "heartbeat errored again while waiting for user revoke to finish; group: <group>, err: "
        "<reason>",
    ),
    (Kind.COMMIT_FAILED, "default commit failed; group: <group>, err: <reason>"),
    (Kind.COMMIT_FAILED, "unable to commit offset for topic partition; group: <group>, …"),
    (
        Kind.COMMIT_FAILED,
        "in default commit: unable to commit offsets for topic partition; group: <group>, …",
    ),
    (
        Kind.COMMIT_FAILED,
        "received an OffsetCommitResponse after our group session has ended, unable to handle "
        "this…",
    ),
)

KAFKAJS: Final = (
    (Kind.SYNCED, "[ConsumerGroup] Consumer has joined the group"),
    (Kind.HEARTBEAT_REBALANCING, "[Runner] The group is rebalancing, re-joining"),
    (
        Kind.UNKNOWN_MEMBER,
        "[Runner] The coordinator is not aware of this member, re-joining the group",
    ),
    (Kind.PROGRESS, "[ConsumerGroup] Chosen as group leader"),
    (Kind.PROGRESS, "[ConsumerGroup] Group assignment"),
    (Kind.PROGRESS, "[ConsumerGroup] Received assignment"),
    (Kind.PROGRESS, "[ConsumerGroup] Consumer group received unsubscribed topics"),
    (Kind.JOIN_FAILED, "[ConsumerGroup] <reason>, resync group"),
    (Kind.PROGRESS, "[Runner] consumer not running, exiting"),
    (Kind.PROGRESS, "[Runner] stop consumer group"),
    (Kind.LEAVING, "[Consumer] Stopped"),
    (Kind.JOIN_FAILED, "[Consumer] Crash: <reason>"),
    (Kind.PROGRESS, "[Consumer] Starting"),
    (Kind.PROGRESS, "[Consumer] Restarting the consumer<rest>"),
    (Kind.HEARTBEAT_REBALANCING, "[Connection] Response Heartbeat(key: 12, version: <version>)"),
    (Kind.JOIN_FAILED, "[Connection] Response JoinGroup(key: 11, version: <version>)"),
    (Kind.JOIN_FAILED, "[Connection] Response SyncGroup(key: 14, version: <version>)"),
    (Kind.COMMIT_FAILED, "[Connection] Response OffsetCommit(key: 8, version: <version>)"),
    (Kind.COORDINATOR_FOUND, "[Cluster] Found group coordinator"),
    (Kind.COORDINATOR_LOST, "[Cluster] Failed to find group coordinator<rest>"),
)

BROD: Final = (
    (
        Kind.PROGRESS,
        "group coordinator (groupId=<group>,memberId=<member>,generation=<generation>,pid=<pid>):…",
    ),
    (Kind.REQUESTED, "re-joining group, reason:<reason>"),
    (Kind.JOIN_FAILED, "failed to join group"),
    (Kind.LEAVING, "Leaving group, reason: <reason>"),
    (Kind.PROGRESS, "Static member stopped without leaving group, reason: <reason>"),
    (
        Kind.CLIENT_FENCED,
        "Static member was fenced by another member using the same group_instance_id…",
    ),
    (Kind.PROGRESS, "elected=<elected>"),
    (Kind.SYNCED, "assignments received:<partitions>"),
    (Kind.COMMIT_FAILED, "failed to commit offset <reason>"),
    (Kind.PROGRESS, "Group member (<group>,coor=<pid>,cb=<pid2>,generation=<generation>):…"),
)

SARAMA: Final = (
    (Kind.CLIENT_FENCED, "JoinGroup failed: group instance id <instance> has been fenced"),
    (Kind.LOST, "consumergroup/<group>: lost ownership of <partitions> due to <reason>"),
    (
        Kind.REQUESTED,
        "consumergroup/<group> loop check partition number goroutine find partitions in topics "
        "<topics> changed from <old> to <count>",
    ),
    (Kind.PROGRESS, "consumergroup/<group> loop check partition number goroutine will exit, …"),
    (Kind.PROGRESS, "consumergroup/<group> topic <topic> get partition number failed due to …"),
    (Kind.PROGRESS, "consumergroup/<group>: falling back to static user data for strategy …"),
    (Kind.PROGRESS, "loop check partition number coroutine will exit, topics <topics>"),
    (Kind.PROGRESS, "Consumer Group topic <topic> get partition number failed <reason>"),
    (
        Kind.PROGRESS,
        "client/coordinator requesting coordinator for consumergroup <group> from <node>",
    ),
    (Kind.PROGRESS, "client/coordinator requesting coordinator for <group> from <node>"),
    (
        Kind.COORDINATOR_FOUND,
        "client/coordinator coordinator for consumergroup <group> is #<id> (<node>)",
    ),
    (Kind.COORDINATOR_FOUND, "client/coordinator coordinator for <group> is #<id> (<node>)"),
    (
        Kind.COORDINATOR_LOST,
        "client/coordinator coordinator for consumer group <group> is not available",
    ),
    (Kind.COORDINATOR_LOST, "client/coordinator coordinator for <group> is not available"),
    (Kind.COORDINATOR_LOST, "client/coordinator request to broker <node> failed: <reason>"),
    (Kind.COORDINATOR_LOST, "client/coordinator retrying after <ms>ms... (<count> attempts …"),
    (Kind.COORDINATOR_LOST, "client/coordinator no available broker to send consumer metadata …"),
    (Kind.PROGRESS, "client/coordinator the __consumer_offsets topic is not initialized …"),
    # Errors of the broker, as sarama words them; the application prints them.
    (
        Kind.HEARTBEAT_REBALANCING,
        "kafka server: A rebalance for the group is in progress. Please re-join the group…",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        "kafka server: The provided member is not known in the current generation…",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        "kafka server: The provided generation id is not the current generation…",
    ),
    (
        Kind.CLIENT_FENCED,
        "kafka server: The broker rejected this static consumer since another consumer with the "
        "same group.instance.id has registered…",
    ),
    (
        Kind.COORDINATOR_LOST,
        "kafka server: Request was for a consumer group that is not coordinated by this broker…",
    ),
    (Kind.COORDINATOR_LOST, "kafka server: The coordinator is not available…"),
)
