"""Messages of Java's consumers and Connect's workers about their groups.

In: nothing. Out: `JAVA`. Must not know: frames, other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

_GENERATION = "Generation{generationId=<generation>, memberId='<member>', protocol=<protocol>}"

JAVA: Final = (
    (
        Kind.CLIENT_FENCED,
        "Attempt to join group with generation <sent> failed because the group instance id "
        "<instance> has been fenced by another instance",
    ),
    (
        Kind.CLIENT_FENCED,
        "SyncGroup failed: The group instance id <instance> has been fenced by another instance…",
    ),
    (Kind.REQUESTED, "Request joining group due to: <reason>"),
    (Kind.JOINED, f"Successfully joined group with generation {_GENERATION}"),
    (Kind.JOINED, "Successfully joined group with generation <generation>"),
    (Kind.SYNCED, f"Successfully synced group in generation {_GENERATION}"),
    # Lines that were cut.
    (
        Kind.JOINED,
        "Successfully joined group with generation Generation{generationId=<generation>, …",
    ),
    (
        Kind.SYNCED,
        "Successfully synced group in generation Generation{generationId=<generation>, …",
    ),
    (
        Kind.CLIENT_FENCED,
        "JoinGroup failed: The group instance id <instance> has been fenced by another instance…",
    ),
    (Kind.JOIN_FAILED, "JoinGroup failed: <reason>. Sent generation was <sent>"),
    (Kind.JOIN_FAILED, "SyncGroup failed: <reason>. Sent generation was <sent>"),
    (Kind.JOIN_FAILED, "JoinGroup failed: <reason>"),
    (Kind.JOIN_FAILED, "SyncGroup failed: <reason>"),
    (Kind.JOIN_FAILED, "Join group failed with <reason>"),
    (Kind.PROGRESS, "Finished assignment for group at generation <generation>: <plan>"),
    (Kind.PROGRESS, "Finished assignment for group at generation <generation>:"),
    (Kind.SYNCED, "Joined group at generation <generation> with protocol version <version> and …"),
    (Kind.PROGRESS, "Rebalance started"),
    (Kind.LOST, "Giving away all assigned partitions as lost since <reason>"),
    (Kind.LOST, "Lost previously assigned partitions <partitions>"),
    (Kind.REVOKED, "Revoke previously assigned partitions <partitions>"),
    (Kind.ADDED, "Adding newly assigned partitions: <partitions>"),
    (
        Kind.LEAVING,
        "Member <member> sending LeaveGroup request to coordinator <node> due to <reason>",
    ),
    (Kind.LEAVING, "Sending LeaveGroup request to coordinator <node>"),
    (Kind.POLL_EXPIRED, "onsumer poll timeout has expired. This means…"),
    (
        Kind.POLL_EXPIRED,
        "This member will leave the group because consumer poll timeout has expired…",
    ),
    (Kind.HEARTBEAT_REBALANCING, "Attempt to heartbeat failed since group is rebalancing"),
    (
        Kind.UNKNOWN_MEMBER,
        "Attempt to heartbeat with <sent> and group instance id <instance> failed due to <reason>, "
        "resetting generation",
    ),
    (Kind.UNKNOWN_MEMBER, "Attempt to heartbeat failed for since member id <member> is not valid"),
    (
        Kind.SESSION_EXPIRED,
        "Group coordinator <node> is unavailable or invalid due to cause: session timed out "
        "without receiving a heartbeat response…",
    ),
    (
        Kind.COORDINATOR_LOST,
        "Group coordinator <node> is unavailable or invalid due to cause: <reason>.isDisconnected…",
    ),
    (
        Kind.COORDINATOR_LOST,
        "Group coordinator <node> is unavailable or invalid due to cause: <reason>. "
        "isDisconnected…",
    ),
    (Kind.COORDINATOR_LOST, "Group coordinator <node> is unavailable or invalid, will attempt …"),
    (Kind.COORDINATOR_FOUND, "Discovered group coordinator <node>"),
    (Kind.COMMIT_FAILED, "Offset commit failed on partition <reason>"),
    (Kind.COMMIT_FAILED, "Failing OffsetCommit request since the consumer is not part of …"),
    (Kind.COMMIT_FAILED, "Offset commit cannot be completed since <reason>"),
    (Kind.PROGRESS, "Member <member> with epoch <epoch> transitioned from <state> to <next>"),
    (Kind.PROGRESS, "Reconciling assignment with local epoch <generation>"),
    (Kind.REQUESTED, "Requesting to re-join the group and trigger rebalance since <reason>"),
    (Kind.REQUESTED, "Need to revoke partitions <partitions> and re-join the group"),
    (
        Kind.REQUESTED,
        "Current config state offset <offset> does <reason>. Forcing rebalance",
    ),
    (Kind.JOIN_FAILED, "Attempt to join group failed due to <reason>"),
    (Kind.JOIN_FAILED, "Attempt to join group with generation <sent> failed because <reason>"),
    (Kind.JOIN_FAILED, "SyncGroup with <sent> failed: <reason>, would request re-join"),
    (Kind.JOIN_FAILED, "JoinGroup failed due to <reason>"),
    (Kind.JOIN_FAILED, "SyncGroup failed due to <reason>"),
    (Kind.JOIN_FAILED, "Rebalance failed"),
    (
        Kind.JOIN_FAILED,
        "Generation data was cleared by heartbeat thread to <sent> and state is now <state> "
        "before …",
    ),
    (
        Kind.JOIN_FAILED,
        "Generation data was cleared by heartbeat thread as <sent> and state is now <state> "
        "before …",
    ),
    (Kind.JOIN_FAILED, "Generation data was cleared by heartbeat thread. …"),
    (Kind.REVOKED, "Revoking previously assigned partitions <partitions>"),
    (Kind.ADDED, "Setting newly assigned partitions: <partitions>"),
    (Kind.ADDED, "Setting newly assigned partitions <partitions>"),
    (Kind.PROGRESS, "Updating assignment with…"),
    (Kind.PROGRESS, "Notifying assignor about the new <plan>"),
    (Kind.PROGRESS, "Resetting generation and member id due to: <reason>"),
    (Kind.PROGRESS, "Resetting generation due to: <reason>"),
    (Kind.PROGRESS, "Requesting disconnect from last known coordinator <node>"),
    (Kind.PROGRESS, "Skipped assignment for returning static leader at generation <generation>. …"),
    (Kind.PROGRESS, "Found no committed offset for partition <partitions>"),
    (Kind.PROGRESS, "Setting offset for partition <topic> to the committed offset <position>"),
    (Kind.PROGRESS, "LeaveGroup request with <sent> failed with error: <reason>"),
    (
        Kind.PROGRESS,
        "Attempt to heartbeat with stale <sent> and group instance id <instance> failed due to "
        "<reason>, ignoring …",
    ),
    (Kind.PROGRESS, "The following subscribed topics are not assigned to any members: <topics>"),
    (Kind.UNKNOWN_MEMBER, "Attempt to heartbeat failed since generation <sent> is not current"),
    (
        Kind.COORDINATOR_LOST,
        "Attempt to heartbeat failed since coordinator <node> is either not started or not valid",
    ),
    (Kind.COORDINATOR_LOST, "Consumer has been disconnected from the group coordinator for <ms>ms"),
    (
        Kind.COORDINATOR_LOST,
        "Broker coordinator was unreachable for <ms>ms. Revoking previous assignment <plan> to "
        "avoid …",
    ),
    (Kind.CLIENT_FENCED, "Caught fenced group.instance.id <instance> error in heartbeat thread"),
    (
        Kind.CLIENT_FENCED,
        "OffsetCommit failed with <sent> due to group instance id <instance> fenced",
    ),
    (Kind.CLIENT_FENCED, "Received fatal exception: group.instance.id gets fenced"),
    (
        Kind.POLL_EXPIRED,
        "Time between subsequent calls to poll() was longer than the configured "
        "max.poll.interval.ms, exceeded approximately by <over> ms. Member <member> will rejoin "
        "the group now",
    ),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for member <member> with stale member epoch error. …",
    ),
    (Kind.COMMIT_FAILED, "OffsetCommit failed with <sent>: <reason>"),
    (Kind.COMMIT_FAILED, "Commit cannot be completed since <reason>"),
    (Kind.COMMIT_FAILED, "Asynchronous auto-commit of offsets <offsets> failed: <reason>"),
    (Kind.COMMIT_FAILED, "Synchronous auto-commit of offsets <offsets> failed: <reason>"),
    (Kind.COMMIT_FAILED, "Offset commit with offsets <offsets> failed…"),
    (Kind.COMMIT_FAILED, "Auto-commit of offsets <offsets> failed…"),
    (Kind.COMMIT_FAILED, "Auto-commit of offsets <offsets> failed for group <group>: <reason>"),
    (Kind.LEAVING, "Member <member> sending LeaveGroup request to coordinator <node>"),
    (
        Kind.LEAVING,
        "Member <member> is triggering callbacks to release assignment <plan> and leave group",
    ),
    (Kind.PROGRESS, "Member <member> completed callback to release assignment. …"),
    (Kind.JOIN_FAILED, "Member <member> with epoch <epoch> transitioned to fatal state"),
    (Kind.UNSUPPORTED, "The cluster does not support the new CONSUMER group protocol. …"),
    (
        Kind.COORDINATOR_LOST,
        "Group coordinator <node> is unavailable or invalid due to cause: <reason>. Rediscovery …",
    ),
    (Kind.PROGRESS, "Finished stopping tasks in preparation for rebalance"),
    (Kind.PROGRESS, "Finished flushing status backing store in preparation for rebalance"),
    (Kind.PROGRESS, "Wasn't able to resume work after last rebalance…"),
)
