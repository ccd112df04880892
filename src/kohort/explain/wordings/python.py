"""Messages of kafka-python, aiokafka and Faust about their groups.

In: nothing. Out: `KAFKA_PYTHON`, `AIOKAFKA`, `COMMITS`. Must not
know: frames, other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

KAFKA_PYTHON: Final = (
    (Kind.HEARTBEAT_REBALANCING, "Heartbeat failed for group <group> because it is rebalancing"),
    (Kind.HEARTBEAT_REBALANCING, "Group <group> is rebalancing; rejoining"),
    (Kind.SESSION_EXPIRED, "Heartbeat session expired, marking coordinator dead"),
    (Kind.POLL_EXPIRED, "Heartbeat poll expired, leaving group"),
    (Kind.LEAVING, "Leaving consumer group (<group>)"),
    (Kind.UNKNOWN_MEMBER, "Heartbeat: local member_id was not recognized; this consumer needs …"),
    (
        Kind.COORDINATOR_LOST,
        "Marking the coordinator dead (node <node>) for group <group>: <reason>",
    ),
    (Kind.LOST, "Group <group> lost membership; forcibly revoking <partitions>"),
    (Kind.REVOKED, "Revoking previously assigned partitions <partitions> for group <group>"),
    (Kind.ADDED, "Setting newly assigned partitions <partitions> for group <group>"),
    (Kind.SYNCED, "Cooperative rebalance complete for group <group>: <plan>"),
    (Kind.COORDINATOR_FOUND, "Discovered coordinator <node> for group <group>"),
    (Kind.JOINED, "Successfully joined group <group> with generation <generation>"),
    (Kind.SYNCED, "Successfully synced group <group> with generation <generation>"),
    # The membership was lost while the answer came.
    (Kind.JOIN_FAILED, "Successfully synced group <group> with generation -1"),
    (Kind.PROGRESS, "Elected group leader -- performing partition assignments using <assignor>"),
    (Kind.JOIN_FAILED, "Error sending JoinGroupRequest_<version> to node <node> [<reason>]…"),
    (Kind.JOINING, "(Re-)joining group <group>"),
    (
        Kind.JOINED,
        "Successfully joined group <group> <Generation <generation> (member_id: <member>, "
        "protocol: <protocol>)>",
    ),
    (Kind.UNKNOWN_MEMBER, "Heartbeat failed for group <group>: generation id is not current"),
    (Kind.UNKNOWN_MEMBER, "Heartbeat failed for group <group>: generation id is not  current"),
    (
        Kind.COORDINATOR_LOST,
        "Heartbeat failed for group <group>: coordinator (node <node>) is either not started or "
        "not valid",
    ),
    (Kind.CLIENT_FENCED, "Heartbeat failed for group <group> due to fenced id error: <instance>"),
    (Kind.CLIENT_FENCED, "SyncGroup for group <group> failed due to fenced id error: <instance>"),
    (
        Kind.CLIENT_FENCED,
        "OffsetCommit for group <group> failed due to fenced id error: <instance>",
    ),
    (Kind.CLIENT_FENCED, "Heartbeat thread caught fenced group_instance_id <instance> error"),
    (Kind.POLL_EXPIRED, "onsumer poll timeout has expired. This means …"),
    (Kind.LEAVING, "Leaving consumer group <group> (member <member>)"),
    (Kind.PROGRESS, "LeaveGroup request for group <group> returned successfully"),
    (Kind.PROGRESS, "LeaveGroup request for group <group> failed with error: <reason>"),
    (Kind.PROGRESS, "LeaveGroup request failed: <reason>"),
    (Kind.PROGRESS, "Received member id <member> for group <group>; will retry join-group"),
    (Kind.JOIN_FAILED, "Attempt to join group <group> failed due to <reason>"),
    (
        Kind.JOIN_FAILED,
        "Attempt to join group <group> rejected since coordinator <node> is loading the group",
    ),
    (Kind.JOIN_FAILED, "Failed to join group <group>: <reason>"),
    (Kind.JOIN_FAILED, "SyncGroup for group <group> failed due to <reason>"),
    (Kind.JOIN_FAILED, "Unexpected error in join group response: <reason>"),
    (Kind.JOIN_FAILED, "Unexpected error from SyncGroup: <reason>"),
    (Kind.COORDINATOR_LOST, "Group Coordinator Request failed: <reason>"),
    (Kind.COORDINATOR_LOST, "Group coordinator lookup for group <group> failed: <reason>"),
    (Kind.COORDINATOR_LOST, "Group Coordinator lookup for group <group> failed: <reason>"),
    (Kind.COORDINATOR_LOST, "Error sending HeartbeatRequest_<version> to node <node> [<reason>]…"),
    (
        Kind.COORDINATOR_LOST,
        "Error sending OffsetCommitRequest_<version> to node <node> [<reason>]…",
    ),
    (Kind.JOIN_FAILED, "Error sending SyncGroupRequest_<version> to node <node> [<reason>]…"),
    (Kind.COORDINATOR_LOST, "Group coordinator for <group> is not known. …"),
    (
        Kind.REVOKED,
        "Cooperative pre-rebalance for group <group>: revoking <partitions> (no longer in "
        "subscription)",
    ),
    (Kind.REQUESTED, "Triggering follow-up rebalance for group <group> to complete <reason>"),
    (Kind.COMMIT_FAILED, "Offset commit failed: group membership out of date<rest>"),
    (
        Kind.COMMIT_FAILED,
        "Offset commit failed: This is likely to cause duplicate message delivery",
    ),
    (
        Kind.COMMIT_FAILED,
        "Pre-rebalance offset commit failed: group membership out of date. This is …",
    ),
    (Kind.COMMIT_FAILED, "Auto offset commit failed for group <group>: <reason>"),
    (Kind.COMMIT_FAILED, "OffsetCommit for group <group> failed: <reason>"),
    (Kind.PROGRESS, "Starting new heartbeat thread"),
    (Kind.PROGRESS, "Stopping heartbeat thread"),
    (Kind.PROGRESS, "Heartbeat thread for group <group> failed due to unexpected error: <reason>"),
    (Kind.PROGRESS, "Heartbeat failed: <reason>"),
    (
        Kind.REVOKED,
        "Revoking previously assigned partitions <partitions> for group <group> on close",
    ),
    (Kind.PROGRESS, "Group Coordinator Not Available; retry"),
    (
        Kind.JOIN_FAILED,
        "JoinGroup for group <group> returned inconsistent protocol_type <reason>",
    ),
    (Kind.JOIN_FAILED, "SyncGroup for group <group> returned inconsistent <reason>"),
    (Kind.REQUESTED, "ssignment rejected: <reason>. Probably due to a deleted topic. …"),
    (Kind.COMMIT_FAILED, "Group <group> failed to commit partition <topic> at offset <reason>"),
    (Kind.COMMIT_FAILED, "OffsetCommit for group <group> failed on partition <reason>"),
    (Kind.COMMIT_FAILED, "Not authorized to commit to topics <topics> for group <group>"),
    (Kind.COMMIT_FAILED, "Not authorized to commit offsets for group <group>"),
    (Kind.COMMIT_FAILED, "Offset commit failed: <reason>"),
    (Kind.COORDINATOR_FOUND, "Group coordinator for <group> is <node>"),
    *(
        (Kind.PROGRESS, template)
        for template in (
            "Updated partition assignment: …",
            "Rebalance listener <listener> for group <group> took <duration>. Sync listeners …",
            "User provided subscription listener <listener> for group <group> failed …",
            "User provided subscription rebalance listener <listener> for group <group> failed …",
            "User provided rebalance listener <listener> for group <group> failed …",
            "LeaveGroup request for member <member> / group instance <instance> returned …",
            "LeaveGroup request for member <member> / group instance <instance> failed …",
            "Received successful heartbeat response for group <group>",
            "Received heartbeat response for group <group>: …",
            "Received group coordinator response …",
            "Received find coordinator response …",
            "Received LeaveGroupResponse: …",
            "Received JoinGroup response: …",
            "Received SyncGroup response: …",
            "Received OffsetCommitResponse: …",
            "Sending group coordinator request for group <group> to broker …",
            "Sending LeaveGroupRequest to …",
            "Sending HeartbeatRequest to …",
            "Sending heartbeat for group <group> <Generation <generation> (member_id: <member>, …",
            "Sending offset-commit request with <offsets> for group <group> to …",
            "Requesting metadata for group coordinator request: …",
            "Heartbeat: <group>[<generation>] <member>",
            "Heartbeat disabled. Waiting",
            "Heartbeat re-enabled",
            "Heartbeat thread closed",
            "Heartbeat thread closed due to coordinator gc",
            "Heartbeat thread did not fully terminate during close",
            "Heartbeat thread started…",
            "Starting heartbeat loop",
            "Heartbeat loop started",
            "Unhandled Heartbeat loop error: …",
            "Group state is not stable, disabling heartbeats",
            "Treating RebalanceInProgressError as successful heartbeat",
            "Disabling heartbeat thread during join-group",
            "Disabling heartbeat during join-group",
            "heartbeat_interval_ms is high relative to session_timeout_ms …",
            "Skipping heartbeat: no auto-assignment or waiting on rebalance",
            "Coordinator unknown during heartbeat -- will retry",
            "Coordinator already known -- ignoring metadata response",
            "Cannot auto-commit offsets for group <group> because …",
            "Successfully auto-committed offsets for group <group>",
            "Failed to auto-commit offsets for group <group>: …",
            "Completed autocommit of offsets <offsets> for group <group>",
            "Broker version (<version>) does not support offset commits; …",
            "group_id is None: disabling auto-commit",
            "Group <group> fetching committed offsets for partitions: …",
            "coordinator.poll: timeout in …",
            "poll: coordinator needs rejoin; returning early",
            "poll: timeout during coordinator.poll(); returning early",
        )
    ),
)

EITHER: Final = "kafka-python or aiokafka"
"""The program of a message that both write, if neither its logger nor another line tells more."""
COMMITS: Final = (
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for group <group> due to group error (<reason>), will …",
    ),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for group <group> on partition <topic> due to <reason>, will retry",
    ),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for group <group> because group is initializing (<reason>), will "
        "retry",
    ),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for group <group> due to a coordinator error (<reason>), will find "
        "new …",
    ),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for group <group> on partition <topic> with offset <offsets>: "
        "<reason>",
    ),
    (Kind.COMMIT_FAILED, "OffsetCommit failed for unauthorized topics <topics>"),
    (Kind.COMMIT_FAILED, "OffsetCommit failed for group <group> - <reason>"),
    (Kind.COMMIT_FAILED, "Auto offset commit failed: <reason>"),
)
"""Messages of both programs: aiokafka took them from kafka-python 1.0."""

AIOKAFKA: Final = (
    (
        Kind.JOIN_FAILED,
        "Error sending JoinGroupRequest_<version> to node <node> [<reason>] -- marking "
        "coordinator dead",
    ),
    (Kind.SESSION_EXPIRED, "Heartbeat session expired - marking coordinator dead"),
    (Kind.UNKNOWN_MEMBER, "Heartbeat failed: local member_id was not recognized; resetting and …"),
    (Kind.COORDINATOR_LOST, "Marking the coordinator dead (node <node>)for group <group>"),
    (Kind.COORDINATOR_LOST, "Marking the coordinator dead (node <node>) for group <group>"),
    (Kind.JOINED, "Joined group '<group>' (generation <generation>) with member_id <member>"),
    (Kind.PROGRESS, "Heartbeat send request failed: <reason>. Will retry"),
    # The only line about a leave, also at the end of the poll interval.
    (Kind.LEAVING, "LeaveGroup request succeeded"),
    (
        Kind.COORDINATOR_LOST,
        "Error sending <request> to node <node> [<reason>] -- marking coordinator dead",
    ),
    (Kind.PROGRESS, "Metadata for topic has changed from <old> to <topics>"),
    (Kind.JOIN_FAILED, "Unexpected error in join group '<group>' response: <reason>"),
    (Kind.PROGRESS, "Executing _on_partitions_revoked"),
    (Kind.PROGRESS, "Executing _on_partitions_assigned"),
    (Kind.PROGRESS, "Restarting on rebalance"),
    (Kind.PROGRESS, "Recovery rebalancing again…"),
    (
        Kind.REQUESTED,
        "Subscription changed during rebalance from <old> to <topics>. Rejoining group",
    ),
    (Kind.COMMIT_FAILED, "OffsetCommit failed before join, ignoring: <reason>"),
    (Kind.COMMIT_FAILED, "Auto offset commit errored: <reason>"),
    (Kind.COMMIT_FAILED, "Failed to commit on finallization: <reason>"),
    (Kind.PROGRESS, "Unexpected error in coordinator routine"),
    (Kind.PROGRESS, "Stopping heartbeat task"),
    (Kind.PROGRESS, "Join group response …"),
    (Kind.PROGRESS, "User provided listener <listener> for group <group> failed on …"),
)
