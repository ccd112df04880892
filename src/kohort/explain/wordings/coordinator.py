"""Messages of a group coordinator about itself: loading, storing, replicas, its own work.

In: nothing. Out: `COORDINATOR`, rows of kind, message and versions of Kafka. Must not know: frames,
members.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

COORDINATOR: Final = (
    (
        Kind.UNLOADED,
        "[GroupId=<group>] Unloading group metadata for generation <generation>",
        "3.7-",
    ),
    (Kind.UNLOADED, "Unloading group metadata for <group> with generation <generation>", "1.0-3.8"),
    (Kind.LOADED, "Loading group metadata for <group> with generation <generation>", "1.0-3.8"),
    (Kind.LOADED, "Loaded classic group <group> with <members> members", "3.7-"),
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading offsets and group metadata from __consumer_offsets-<partition> in <ms> "
        "milliseconds…",
        "1.0-3.8",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading offsets from [__consumer_offsets,<partition>] in <ms> milliseconds",
        "0.9-0.10",
    ),
    (
        Kind.HOUSEKEEPING,
        "Loading offsets and group metadata from [__consumer_offsets,<partition>]",
        "0.9-0.10",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Elected as the group coordinator for partition <partition> in epoch <epoch>",
        "2.8-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Resigned as the group coordinator for partition <partition> in epoch <epoch>",
        "2.8-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished unloading metadata for __consumer_offsets-<partition> with epoch <epoch>",
        "3.7-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading of metadata from __consumer_offsets-<partition> with epoch <epoch> in "
        "<ms>ms…",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Scheduling loading of metadata from __consumer_offsets-<partition> …",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Scheduling unloading of metadata for __consumer_offsets-<partition> with …",
        "3.7-",
    ),
    (Kind.HOUSEKEEPING, "Started unloading metadata for __consumer_offsets-<partition> …", "3.7-"),
    (Kind.HOUSEKEEPING, "Scheduling loading of offsets and group metadata from …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Generated <count> tombstone records in <ms> milliseconds while …", "3.7-"),
    (Kind.HOUSEKEEPING, "Generated <count> records in <ms> milliseconds while …", "3.7-"),
    (Kind.HOUSEKEEPING, "Removed <count> offsets associated with deleted partitions: …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Removed <count> expired offsets in <ms> milliseconds", "1.0-3.8"),
    (
        Kind.HOUSEKEEPING,
        "Group <group> transitioned to Dead in generation <generation>",
        "1.0-3.8",
    ),
    (
        Kind.HOUSEKEEPING,
        "Ignored unloading metadata for __consumer_offsets-<partition> in …",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Ignored loading metadata from __consumer_offsets-<partition> since …",
        "3.7-",
    ),
    (Kind.HOUSEKEEPING, "Ignored load completion from __consumer_offsets-<partition> …", "3.7-"),
    (Kind.HOUSEKEEPING, "The coordinator __consumer_offsets-<partition> is already …", "3.7-"),
    (Kind.HOUSEKEEPING, "Starting up", None),
    (Kind.HOUSEKEEPING, "Startup complete", None),
    (Kind.HOUSEKEEPING, "Shutting down", None),
    (Kind.HOUSEKEEPING, "Shutdown complete", None),
    (Kind.HOUSEKEEPING, "Shutting down event processor", "3.7-"),
    (Kind.HOUSEKEEPING, "Event processor closed", "3.7-"),
    (
        Kind.HOUSEKEEPING,
        "[GroupId <group>] Creating a simple consumer group via manual offset commit",
        "3.7-",
    ),
    (Kind.LOADED, "Loaded consumer group <group> with <members> members", "3.7-"),
    (
        Kind.UNLOADED,
        "[GroupId=<group>] Unloaded group metadata for group epoch <generation>",
        "3.7-",
    ),
    (
        Kind.LOADED,
        "Loaded member MemberMetadata(memberId=<member>, groupInstanceId=<instance>, "
        "clientId=<client>, clientHost=<host>, sessionTimeoutMs=<session>, "
        "rebalanceTimeoutMs=<timeout>, supportedProtocols=<protocols>) in group <group> with "
        "generation <generation>",
        "2.7-3.8",
    ),
    (
        Kind.LOADED,
        "Loaded member <member> in group <group> with generation <generation>",
        "2.7-3.8",
    ),
    (Kind.EMPTY, "Group <group> generation <generation> is dead and removed", "0.9-0.10"),
    # Lines that only kohort's broker writes.
    (
        Kind.STORE_FAILED,
        "Writing the <what> of group <group> to __consumer_offsets failed with <reason>",
        None,
    ),
    *(
        (Kind.HOUSEKEEPING, template, None)
        for template in (
            "The connection of member <member> in group <group> was lost while its …",
            "Metadata of member <member> of group <group> for protocol <protocol> is no …",
            "Client <client> at <host> was refused by group <group>: its metadata of …",
            "A request for group <group> was refused: …",
        )
    ),
    (
        Kind.HOUSEKEEPING,
        "Static member <instance> of group <group> loaded with member id <member> at generation "
        "<generation>",
        "2.3-2.6",
    ),
    (
        Kind.STORE_FAILED,
        "Appending metadata message for group <group> generation <generation> failed due to "
        "<reason>, returning UNKNOWN error code to the client",
        "1.0-3.8",
    ),
    (
        Kind.STORE_FAILED,
        "Appending metadata message for group <group> generation <generation> failed due to "
        "unexpected error: <reason>",
        "1.0-3.8",
    ),
    (Kind.STORE_FAILED, "Failed to persist metadata for group <group>: <reason>", "2.5-3.8"),
    (
        Kind.STORE_FAILED,
        "Failed to persist metadata for group <group> static member <member> with group instance "
        "id <instance> due to <reason>. Reverting to old member id <old>",
        "3.7-",
    ),
    (Kind.STORE_FAILED, "Failed to write empty metadata for group <group>: <reason>", "1.0-"),
    (
        Kind.STORE_FAILED,
        "Writing records to __consumer_offsets-<partition> failed due to: <reason>",
        "3.7-",
    ),
    (Kind.HOUSEKEEPING, "Execution of <operation> failed due to <reason>", "3.7-"),
    (
        Kind.HOUSEKEEPING,
        "Replaying record <record> to __consumer_offsets-<partition> failed due to: <reason>",
        "3.7-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "The state machine of the coordinator __consumer_offsets-<partition> is out of sync with …",
        "3.7-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Failed to load metadata from __consumer_offsets-<partition> with epoch <epoch> due to "
        "<reason>",
        "3.7-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished unloading __consumer_offsets-<partition> for coordinator epoch <epoch>. Removed "
        "…",
        "2.8-3.8",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished unloading __consumer_offsets-<partition>. Removed …",
        "1.0-2.7",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading offsets and group metadata from __consumer_offsets-<partition> in <ms> "
        "milliseconds",
        "1.0-2.5",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Error loading offsets from __consumer_offsets-<partition>",
        "1.0-3.8",
    ),
    (Kind.HOUSEKEEPING, "Scheduling unloading of offsets and group metadata from …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Already loading offsets and group metadata from …", "1.1-3.8"),
    (
        Kind.HOUSEKEEPING,
        "Offset load from __consumer_offsets-<partition> already in progress",
        "1.0-1.0",
    ),
    (Kind.HOUSEKEEPING, "Not loading offsets and group metadata for …", "2.8-3.8"),
    (Kind.HOUSEKEEPING, "Not removing offsets and group metadata for …", "2.8-3.8"),
    (Kind.HOUSEKEEPING, "Attempted to load offsets and group metadata from …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Loaded offsets and group metadata from …", "2.1-3.8"),
    (Kind.HOUSEKEEPING, "The following groups were deleted: <list>. A total of …", "2.0-"),
    (
        Kind.HOUSEKEEPING,
        "The following offsets of the group <group> were deleted: <list>. A total of …",
        "2.4-3.8",
    ),
    (
        Kind.HOUSEKEEPING,
        "Generated <count> tombstone records while cleaning up group metadata in <ms> milliseconds",
        "3.7-",
    ),
    (Kind.HOUSEKEEPING, "Failed to append <count> tombstones to …", "1.0-3.8"),
    (Kind.HOUSEKEEPING, "Group <group> is dead, skipping rebalance stage", "2.2-"),
    (
        Kind.HOUSEKEEPING,
        "BrokerId <node> is no longer a coordinator for the group <group>. Proceeding …",
        "1.0-3.8",
    ),
    (
        Kind.HOUSEKEEPING,
        "Group <group> has moved away from <node> after transaction marker was written …",
        "1.0-3.8",
    ),
    (
        Kind.HOUSEKEEPING,
        "Member id <member> was not found in <group> during heartbeat …",
        "2.2-2.8",
    ),
    (
        Kind.HOUSEKEEPING,
        "Received notification of heartbeat expiration for member <member> after group <group> "
        "had already …",
        "2.2-",
    ),
    (Kind.HOUSEKEEPING, "Received unexpected notification of sync expiration …", "2.8-"),
    (
        Kind.HOUSEKEEPING,
        "Attempt to add rejoining member <member> of group <group> in unexpected group state "
        "<state>",
        "2.2-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Failed to parse Consumer Protocol <protocol> of group <group>. Consumer group "
        "coordinator …",
        "2.5-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Cannot downgrade consumer group <group> to classic group because <reason>",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Cannot upgrade classic group <group> to consumer group because <reason>",
        "3.7-",
    ),
    (
        Kind.HOUSEKEEPING,
        "Unknown message key with version <version> while loading offsets …",
        "3.6-3.8",
    ),
    (
        Kind.REPLICAS_CHANGED,
        "[Partition __consumer_offsets-<partition> broker=<node>] Shrinking ISR from <before> to "
        "<after>. Leader: …",
        "2.0-",
    ),
    (
        Kind.REPLICAS_CHANGED,
        "[Partition __consumer_offsets-<partition> broker=<node>] Shrinking ISR from <before> to "
        "<after>",
        "1.0-",
    ),
    (
        Kind.REPLICAS_CHANGED,
        "[Partition __consumer_offsets-<partition> broker=<node>] Expanding ISR from <before> to "
        "<after>",
        "1.0-",
    ),
    (
        Kind.REPLICAS_CHANGED,
        "[Partition __consumer_offsets-<partition> broker=<node>] ISR updated to <after>",
        "2.0-",
    ),
)
