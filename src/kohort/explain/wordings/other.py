"""Messages of franz-go, sarama, KafkaJS, brod, kafka-go and ruby-kafka about their groups.

In: nothing. Out: a table for each program. Must not know: frames,
other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

FRANZ_GO_VALUES: Final = (
    *("group", "member_id", "instance_id", "prior_member_id", "prior_generation"),
    *("new_member_id", "new_generation", "generation", "protocol_type", "protocol"),
    *("now_assigned", "assigned", "revoking", "added", "lost", "stage", "instance"),
    *("err", "why", "is848", "id", "interests", "plan"),
)
"""The names of values in the messages of franz-go, in their order there."""

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
    (Kind.COORDINATOR_LOST, "heartbeat errored; group: <group>, err: NOT_COORDINATOR…"),
    (Kind.COORDINATOR_LOST, "heartbeat errored; group: <group>, err: COORDINATOR_…"),
    (Kind.PROGRESS, "heartbeat errored; group: <group>, err: context canceled…"),
    # An error in words that are not known: the member joins again all the same.
    (Kind.REQUESTED, "heartbeat errored; group: <group>, err: <reason>"),
    (Kind.REQUESTED, "heartbeat errored; group: <group>"),
    (Kind.CLIENT_FENCED, "join group failed; group: <group>, err: FENCED_INSTANCE_ID…"),
    (
        Kind.CLIENT_FENCED,
        "join and sync loop errored; group: <group>, err: FENCED_INSTANCE_ID…",
    ),
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
    (Kind.JOIN_FAILED, "join and sync loop errored; group: <group>, err: <reason>, …"),
    (Kind.JOIN_FAILED, "sync assignment parse failed; group: <group>, err: <reason>"),
    (Kind.PROGRESS, "heartbeat loop complete; group: <group>, err: <reason>"),
    (Kind.REQUESTED, "forced rejoin quitting heartbeat loop; why: <reason>"),
    (Kind.REQUESTED, "forced rejoin quitting heartbeat loop; why: <reason>, is848: <new>"),
    (Kind.LEAVING, "leaving next-gen group; group: <group>, member_id: <member>, …"),
    (Kind.PROGRESS, "beginning to manage the next-gen group lifecycle; group: <group>"),
    (
        Kind.UNSUPPORTED,
        "falling back to standard consumer group management due to lack of broker support; group: "
        "<group>",
    ),
    (
        Kind.SYNCED,
        "consumer group initial heartbeat received assignment; group: <group>, member_id: "
        "<member>, generation: <generation>, now_assigned: <partitions>",
    ),
    (
        Kind.SYNCED,
        "consumer group heartbeat detected an updated assignment; exited heartbeat loop to assign "
        "& reentering; group: <group>, member_id: <member>, generation: <generation>, "
        "now_assigned: <partitions>",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        "consumer group heartbeat saw fenced member epoch, abandoning assignment and rejoining; "
        "group: <group>, member_id: <member>, generation: <generation>",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        "received fenced member epoch with epoch 0; clearing member ID to forcefully join as a new "
        "member; group: <group>, prior_member_id: <old>, prior_generation: <before>, "
        "new_member_id: <member>, new_generation: <generation>",
    ),
    (
        Kind.UNKNOWN_MEMBER,
        "consumer group heartbeat error, abandoning assignment and rejoining with new member id; "
        "group: <group>, member_id: <member>, generation: <generation>, err: <reason>",
    ),
    (
        Kind.COORDINATOR_LOST,
        "consumer group initial heartbeat hit retryable error, backing off and retrying; group: "
        "<group>, err: <reason>, …",
    ),
    (
        Kind.CLIENT_FENCED,
        "UnreleasedInstanceID after 3 retries - static instance is held by another member; check "
        "for duplicate InstanceID config or an unclean peer shutdown; group: <group>, instance: "
        "<instance>",
    ),
    (
        Kind.COMMIT_FAILED,
        "offset commit returned a fatal group member error, triggering rejoin; group: <group>, "
        "err: <reason>",
    ),
    (
        Kind.COMMIT_FAILED,
        "offset commit: stale member epoch after 10 retries, giving up; group: <group>",
    ),
    *(
        (Kind.PROGRESS, template)
        for template in (
            "offset commit got stale member epoch, retrying with updated epoch; group: <group>, …",
            "received STALE_MEMBER_EPOCH while committing; …",
            "tried to leave group but we have no member ID yet, returning early; group: <group>",
            "downgrading from cooperative group to eager group, this is not supported per …",
            "group protocol downgraded from cooperative to eager; …",
            "member was assigned topic that we did not ask for in ConsumeTopics! …",
            "balancing group as leader",
            "balance group member; id: <member>, interests: <topics>",
            "balance group member; id: <member>, instance_id: <instance>, interests: <topics>",
            "balanced; plan: <plan>",
            "balance failed; err: <reason>",
            "group members indicated interest in topics the leader is not assigned, …",
            "unable to log information about group member interests: …",
            "fetching offsets for added partitions; group: <group>, …",
            "fetched committed offsets; group: <group>",
            "fetched committed offsets; group: <group>, …",
            "fetch offsets failed; group: <group>, …",
            "fetch offsets failed with non-retriable error; group: <group>, …",
            "fetch offsets failed with non-retryable error; group: <group>, …",
            "fetch offsets failed with group-level error; group: <group>, …",
            "fetch offsets failed due to context cancelation; group: <group>",
            "fetching offsets; group: <group>, …",
            "fetch offsets returned; group: <group>, …",
            "fetch offsets returned stale member epoch, forcing heartbeat and retrying; group: …",
            "fetch offsets failed with retryable partition error, waiting 1s and …",
            "fetch offsets failed with UnstableOffsetCommit, waiting 1s and …",
            "fetch offsets failed for partition; injecting error and …",
            "ignoring consumer group heartbeat response with …",
            "updated uncommitted; group: <group>, …",
            "updated committed; group: <group>, …",
            "autocommitting; group: <group>",
            "issuing commit; group: <group>, …",
            "default commit canceled; group: <group>",
            "in CommitOffsetsSync; group: <group>, …",
            "left CommitOffsetsSync; group: <group>",
            "canceling prior commit to issue another; group: <group>",
            "skipping autocommit due to no offsets to commit; group: <group>",
            "assigning partitions; why: <reason>, how: <how>, input: <plan>",
            "storing member and epoch; <rest>, epoch: …",
            "transact session in on_revoke; aborting next commit if …",
            "transact session in on_lost; aborting next commit if …",
        )
    ),
)

KAFKAJS: Final = (
    # Some loggers leave the first word out, as `[Runner]`.
    (Kind.SYNCED, "Consumer has joined the group"),
    (Kind.HEARTBEAT_REBALANCING, "The group is rebalancing, re-joining"),
    (Kind.UNKNOWN_MEMBER, "The coordinator is not aware of this member, re-joining the group"),
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
    # The field `error` tells whether the request failed, and why.
    (Kind.HEARTBEAT_REBALANCING, "Response Heartbeat(key: 12, version: <answered>)"),
    (Kind.JOIN_FAILED, "Response JoinGroup(key: 11, version: <answered>)"),
    (Kind.JOIN_FAILED, "Response SyncGroup(key: 14, version: <answered>)"),
    (Kind.COMMIT_FAILED, "Response OffsetCommit(key: 8, version: <answered>)"),
    (Kind.COORDINATOR_FOUND, "[Cluster] Found group coordinator"),
    (Kind.COORDINATOR_LOST, "[Cluster] Failed to find group coordinator<rest>"),
)

BROD: Final = (
    (
        Kind.PROGRESS,
        "group coordinator (groupId=<group>,memberId=<member>,generation=<generation>,pid=<pid>):…",
    ),
    (Kind.HEARTBEAT_REBALANCING, "re-joining group, reason::rebalance_in_progress"),
    (Kind.HEARTBEAT_REBALANCING, "re-joining group, reason::RebalanceInProgress"),
    (Kind.UNKNOWN_MEMBER, "re-joining group, reason::unknown_member_id"),
    (Kind.UNKNOWN_MEMBER, "re-joining group, reason::UnknownMemberId"),
    (Kind.UNKNOWN_MEMBER, "re-joining group, reason::illegal_generation"),
    (Kind.UNKNOWN_MEMBER, "re-joining group, reason::IllegalGeneration"),
    (Kind.HEARTBEAT_REBALANCING, "re-joining group, reason:rebalance_in_progress"),
    (Kind.UNKNOWN_MEMBER, "re-joining group, reason:unknown_member_id"),
    (Kind.UNKNOWN_MEMBER, "re-joining group, reason:illegal_generation"),
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
        Kind.PROGRESS,
        "client/coordinator requesting coordinator for consumergoup <group> from <node>",
    ),
    (
        Kind.COORDINATOR_FOUND,
        "client/coordinator coordinator for consumergoup <group> is #<id> (<node>)",
    ),
    (Kind.JOINING, "cluster/consumer <member> rebalance"),
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
    # The subscriptions of a session end before a rebalance and begin after it.
    (Kind.REVOKED, "consumer/broker/<id> closed dead subscription to <partitions>"),
    (Kind.SYNCED, "consumer/broker/<id> accumulated <count> new subscriptions"),
    (Kind.ADDED, "consumer/broker/<id> added subscription to <partitions>"),
    (Kind.PROGRESS, "consumergroup/session/<member>/<generation> released"),
    (Kind.PROGRESS, "consumergroup/session/<member>/<generation> heartbeat loop stopped"),
    (Kind.PROGRESS, "consumer-group/claim <topic> retrying after <delay>... (<count> attempts …"),
    (
        Kind.COORDINATOR_LOST,
        "client was not authorized to access group <group> while attempting to find coordinator",
    ),
)

KAFKA_GO: Final = (
    (Kind.JOINING, "entering loop for consumer group, <group>"),
    (Kind.JOINED, "Joined group <group> as member <member> in generation <generation>"),
    (Kind.PROGRESS, "joined group <group> as member <member> in generation <generation>"),
    (
        Kind.PROGRESS,
        "joinGroup succeeded for response, <group>.  generationID=<generation>, memberID=<member>",
    ),
    (Kind.JOIN_FAILED, "Failed to join group <group>: <reason>"),
    (Kind.JOIN_FAILED, "Failed to sync group <group>: <reason>"),
    (Kind.SYNCED, "sync group finished for group, <group>"),
    (
        Kind.SYNCED,
        "received empty assignments for group, <group> as member <member> for generation "
        "<generation>",
    ),
    (
        Kind.COORDINATOR_LOST,
        "Unable to establish connection to consumer group coordinator for group <group>: <reason>",
    ),
    (Kind.LEAVING, "Leaving group <group>, member <member>"),
    (
        Kind.PROGRESS,
        "Syncing <count> assignments for generation <generation> as member <member>",
    ),
    *(
        (Kind.PROGRESS, template)
        for template in (
            "selected as leader for group, <group>",
            "using '<assignor>' balancer to assign group, <group>",
            "assigned member/topic/partitions …",
            "started heartbeat for group, <group> [<interval>]",
            "stopped heartbeat for group <group>",
            "started commit for group <group>",
            "stopped commit for group <group>",
        )
    ),
)

RUBY_KAFKA: Final = (
    (Kind.JOINING, "Joining group `<group>`"),
    (Kind.JOINED, "Joined group `<group>` with member id `<member>`"),
    (Kind.ADDED, "Partitions assigned for `<topic>`: <numbers>"),
    (Kind.PROGRESS, "Chosen as leader of group `<group>`"),
    (Kind.LEAVING, "Leaving group `<group>`"),
    (Kind.JOIN_FAILED, "Failed to join group; resetting member id and retrying in …"),
    (Kind.JOIN_FAILED, "Failed to join group; retrying in …"),
    (Kind.UNKNOWN_MEMBER, "Error sending heartbeat: Kafka::UnknownMemberId"),
    (Kind.UNKNOWN_MEMBER, "Error sending heartbeat: Kafka::IllegalGeneration"),
    (Kind.HEARTBEAT_REBALANCING, "Error sending heartbeat: Kafka::RebalanceInProgress"),
    (Kind.COORDINATOR_LOST, "Error sending heartbeat: <reason>"),
    (Kind.COMMIT_FAILED, "Error committing offsets: <reason>"),
)
