"""Messages of Kafka's coordinators that the main tables leave out.

Scala's rare ones, the runtime of the Java coordinator, groups of KIP-848, share and streams groups.

In: nothing. Out: `SERVER`, rows of kind, message and versions of Kafka. Must not know: frames,
clients.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

_SCALA: Final = (
    (
        Kind.PREPARING,
        "Preparing to rebalance group <group> in state <state> with old generation <generation> "
        "(__consumer_offsets-<partition>) (reason: <reason>)",
        "2.1-3.8",
    ),
    (
        Kind.PREPARING,
        "Preparing to rebalance group <group> in state <state> with old generation <generation> "
        "(reason: <reason>)",
        "3.7-",
    ),
    (
        Kind.NEW_MEMBER,
        "ynamic member with unknown member id rejoins group <group> in <state> state. Created a "
        "new member id <member> and request the member to rejoin with this id",
        "2.2-2.4",
    ),
    (
        Kind.NEW_MEMBER,
        "ynamic member with unknown member id rejoins group <group> in <state> state. Created a "
        "new member id <member> for this member and add to the group",
        "2.2-2.4",
    ),
    (
        Kind.MEMBER_JOINS,
        "ynamic Member with specific member id <member> joins group <group> in <state> state. "
        "Adding to the group now",
        "2.5-2.8",
    ),
    (
        Kind.STATIC_JOINS,
        "Static Member with unknown member id joins group <group> in <state> state. Created a new "
        "member id <member> for this member and add to the group",
        "2.5-2.8",
    ),
    (
        Kind.REMOVED_LATE,
        "Group <group> removed members <rest> sent their sync request: <list>",
        "2.8-3.8",
    ),
    (
        Kind.REMOVED_LATE,
        "Group <group> removed members <rest> sent their sync requests: <list>",
        "3.7-",
    ),
    (
        Kind.LEADER_REPLACED,
        "Group leader [member.id: <member>, group.instance.id: <instance>] failed to join before "
        "rebalance timeout, and the group couldn't proceed to next generationbecause no member "
        "joined",
        "2.3-3.8",
    ),
    (
        Kind.STORE_FAILED,
        "Metadata from group <group> with generation <generation> failed when appending to log "
        "due to <reason>",
        "1.0-3.8",
    ),
    (
        Kind.STORE_FAILED,
        "Offset commit <offsets> from group <group>, consumer <member> with generation "
        "<generation> failed when appending to log due to <reason>",
        "1.0-3.8",
    ),
    *(
        (Kind.HOUSEKEEPING, template, versions)
        for template, versions in (
            ("Could not fetch offsets for group <group> (not group coordinator)", "1.0-1.1"),
            ("Member <member> has already been removed from the group", "2.2-"),
            ("Expired offsets from group '<group>': …", "2.1-3.8"),
            ("Attempt to load group <group> from log with generation <generation> failed …", None),
            ("Loaded group metadata <group> with offsets <offsets> and pending offsets …", None),
            ("Started loading offsets and group metadata from …", "2.8-3.8"),
            ("Started unloading offsets and group metadata for …", "2.8-3.8"),
            ("Failed to invoke join callback for <member> due to …", "3.3-3.8"),
            ("Failed to invoke sync callback for <member> due to …", "3.3-3.8"),
            ("The following groups were deleted: <list>", "1.1-1.1"),
            ("Creating simple consumer group <group> via manual offset commit", "3.7-"),
            ("group: <group> with leader: <leader> has received offset commits from …", None),
        )
    ),
)

_RUNTIME: Final = (
    (
        Kind.COORDINATOR_MOVED,
        "Finished loading of metadata from __consumer_offsets-<partition> with epoch <epoch> and …",
        "3.7-3.7",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Failed to unload metadata for __consumer_offsets-<partition> with epoch <epoch> due to "
        "<reason>",
        "3.7-",
    ),
    (
        Kind.COORDINATOR_MOVED,
        "Failed to unload metadata for __consumer_offsets-<partition> due to <reason>",
        "4.0-",
    ),
    (
        Kind.STORE_FAILED,
        "Failed to write a batch of <size> record(s) to __consumer_offsets-<partition> because "
        "<reason>",
        "4.1-",
    ),
    (
        Kind.STORE_FAILED,
        "Failed to write records to __consumer_offsets-<partition> because <reason>",
        "4.0-",
    ),
    (
        Kind.STORE_FAILED,
        "Failed to write records to __consumer_offsets-<partition> due to an unexpected error: "
        "<reason>",
        "4.0-",
    ),
    *(
        (Kind.HOUSEKEEPING, template, "3.7-")
        for template in (
            "Executing write event <event> for timer …",
            "Scheduling write event <event> for timer …",
            "The write event <event> for the timer <timer> failed …",
            "The write event <event> for the timer <timer> was not executed …",
            "The write event for the task <event> failed …",
            "The write event for the task <event> was not executed …",
            "Failed to enqueue write event <event> for timer …",
            "Registering timer <timer> with delay of …",
            "Transition from <before> to <after>",
            "High watermark of <partition> incremented to …",
            "High watermark of __consumer_offsets-<partition> incremented to …",
            "Updating high watermark of …",
            "Ignored high watermark updated for …",
            "Scheduled execution of <what> operation …",
            "Scheduled execution of transaction completion for …",
            "Scheduled loading of metadata from …",
            "Ignoring load completion from …",
            "Ignoring loading metadata from …",
            "Failed to complete the loading of metadata for …",
            "Cannot load coordinator <name> in state …",
            "Scheduling applying of a new metadata image with …",
            "Applying new metadata image with …",
            "Ignored new metadata image with …",
            "Ignoring new metadata image with …",
            "Coordinator runtime is already shutting down",
            "Closing coordinator runtime",
            "Coordinator runtime closed",
            "Replaying records to <name> failed due to …",
            "Failed to flush the pending records to …",
            "Failed to write the transaction marker to …",
            "Loaded metadata from <name> with buffer larger …",
            "Unknown record type <type> while loading offsets and group metadata from …",
            "Coordinator loader is already shutting down",
            "Group coordinator is already running",
            "Group coordinator is already shutting down",
            "Could not delete offsets for deleted …",
            "Operation <operation> with <request> hit an unexpected exception: …",
            "JoinGroup request <request> hit an unexpected exception: …",
            "SyncGroup request <request> hit an unexpected exception: …",
            "Heartbeat request <request> hit an unexpected exception: …",
            "LeaveGroup request <request> hit an unexpected exception: …",
            "ConsumerGroupDescribe request <request> hit an unexpected exception: …",
            "DescribeGroups request <request> hit an unexpected exception: …",
            "Deserializing record <record> from __consumer_offsets-<partition> failed…",
            "Replaying record <record> from __consumer_offsets-<partition> at offset …",
            "Loaded member <member> in <kind> group <group>",
            "Loaded group <group> with an unknown group type …",
            "Removed group <group> with an unknown group type …",
            "onUnloaded group with an unknown group type …",
            "Skip downgrading the consumer group <group> to classic …",
            "Cannot downgrade the consumer group <group>: …",
            "Cannot downgrade the classic group <group>: …",
            "Cannot upgrade the classic group <group> to consumer group because …",
            "Cannot upgrade classic group <group> to consumer group: …",
            "Cannot join the consumer group <group> with the classic protocol because …",
            "Downgrade group <group> from consumer to classic with …",
            "Cannot find the group, skipping …",
            "Cannot complete join phase of group <group> because …",
            "Reached unexpected condition for Dead group <group>",
            "Received notification of sync expiration for an unknown classic group <group>",
            "Received unexpected JoinGroup with groupInstanceId=<instance> for pending member …",
            "Received a tombstone record to delete …",
            "Group <group> must be in <state> state but …",
            "Skipped the materialization of transactional offset commit …",
            "Committed transactional offset commit …",
            "Committed transactional offset commits for …",
            "Committed transaction offset commit for …",
            "Aborted transactional offset commits for …",
            "Replayed end transaction marker with …",
            "Replaying offset commit with …",
            "Replaying transactional offset commit with …",
            "The group config '<name>' for group '<group>' has value …",
            "The effective <name> (<value>) for group '<group>' is not greater than …",
            "The config '<name>' has value <value> which …",
            "Failed to unload coordinator for …",
            "Tried to flush an empty batch for …",
            "Completion of event <event> failed due to …",
            "Executing event: …",
            "Draining event: …",
            "Draining threw exception",
            "Event processor is already shutting down",
            "Shutting down. Draining the remaining events",
            "Failed to run event <event> due to: …",
            "Failed to reject event <event> due to: …",
            "Revert last written offset of …",
            "Updated last written offset of …",
            "Updated committed offset of …",
            "Replaying end transaction marker from …",
            "Generated <count> records in <ms> milliseconds while cleaning …",
        )
    ),
)

_G = "[GroupId <group>] "
_M = "[GroupId <group>][MemberId <member>] "

_NEW_PROTOCOL: Final = (
    (Kind.MEMBER_JOINS, _G + "Member <member> joins the consumer group", "3.7-3.9"),
    (
        Kind.MEMBER_JOINS,
        _G + "Static member <member> with instance id <instance> joins the consumer group",
        "3.7-3.9",
    ),
    (
        Kind.STATIC_REPLACED,
        _G + "Static member <member> with instance id <instance> re-joins the consumer group",
        "3.7-3.9",
    ),
    (
        Kind.STATIC_REPLACED,
        _G + "Static member with unknown member id and instance id <instance> re-joins the "
        "consumer group. Created a new member <member> to replace the existing member <old>",
        "3.8-3.9",
    ),
    (Kind.EPOCH, _G + "Bumped group epoch to <generation>", "3.7-4.0"),
    (
        Kind.TARGET,
        _G + "Computed a new target assignment for epoch <generation> with '<assignor>' "
        "assignor: <plan>",
        "3.7-3.7",
    ),
    (
        Kind.TARGET,
        _G + "Computed a new target assignment for epoch <generation> with '<assignor>' assignor "
        "in <ms>ms: <plan>",
        "3.8-",
    ),
    (Kind.RECONCILED, _G + "Member <member> transitioned from <before> to <state>", "3.7-3.7"),
    (Kind.RECONCILED, _G + "Member <member> updated its subscribed regex to: <topics>", "3.7-"),
    (
        Kind.LEFT,
        _G + "Static member <member> with instance id <instance> has left group through explicit "
        "`LeaveGroup` request; client reason: <reason>",
        "4.0-",
    ),
    (
        Kind.LEFT,
        _G + "Static member <member> with instance id <instance> left the consumer group",
        "4.0-",
    ),
    (
        Kind.FENCED,
        "Static member <member> with instance id <instance> was fenced by member <old>",
        "4.0-",
    ),
    (
        Kind.LEFT,
        _G + "Dynamic member <member> has left group through explicit `LeaveGroup` request; client "
        "reason: <reason>",
        "4.0-",
    ),
    (
        Kind.FENCED,
        _G + "Static member <member> with instance id <instance> cannot join the group because the "
        "instance id is owned by member <old>",
        "3.8-",
    ),
    (Kind.CONVERTED, _G + "Converted the <old> group to a <new> group", "4.0-"),
    (Kind.CONVERTED, _G + "Converted the empty <old> group to a <new> group", "4.0-"),
    (
        Kind.RECONCILED,
        _G + "Member <member> new assignment state: epoch=<generation>, previousEpoch=<previous>, "
        "state=<state>, assignedPartitions=<partitions> and revokedPartitions=<revoked>",
        "3.8-",
    ),
    (Kind.EXPIRED, _G + "Streams member <member> fenced from the group because <reason>", "4.1-"),
    (Kind.MEMBER_JOINS, _G + "Member <member> joins the share group using the share …", "4.0-"),
    (Kind.LEFT, _G + "Member <member> left the share group", "4.0-"),
    (Kind.LEFT, _G + "Member <member> left the streams group", "4.1-"),
    (Kind.MEMBER_JOINS, _M + "Member joins the streams group", "4.1-"),
    (Kind.LEFT, _M + "Member <name> left the streams group", "4.1-"),
    (
        Kind.EPOCH,
        _M + "Bumped streams group epoch to <generation> with metadata hash <hash> and …",
        "4.1-",
    ),
    (
        Kind.TARGET,
        _M + "Computed a new target assignment for epoch <generation> with '<assignor>' …",
        "4.1-",
    ),
    (
        Kind.RECONCILED,
        _M + "Member's new assignment state: epoch=<generation>, previousEpoch=<previous>, "
        "state=<state>, assignedTasks=<tasks>",
        "4.1-",
    ),
    (Kind.RECONCILED, _M + "Member updated its member metadata to <topics>", "4.1-"),
    (Kind.REQUESTED, _M + "Assignment configurations changed to <reason>. Triggering …", "4.1-"),
    (Kind.LOADED, "Loaded streams group <group> with <members> members", "4.1-"),
    (Kind.LOADED, "Loaded share group <group> with <members> members", "4.0-"),
    *(
        (Kind.HOUSEKEEPING, template, "3.7-")
        for template in (
            _G + "Could not fence <member> because …",
            _G + "Could not fence streams member <member> because …",
            _G + "Ignoring rebalance timeout for <member> because …",
            _G + "Ignoring revocation timeout for <member> because …",
            _G + "Computed new metadata hash: …",
            _G + "Skipping delayed target assignment: …",
            _G + "Group not found during initial rebalance",
            _G + "Failed to compute a new target assignment for …",
            _G + "Cannot remove the epoch <epoch> from …",
            _G + "Cannot remove the process ID <id> from …",
            _G + "Received updated regular expressions based on …",
            _G + "Refreshing regular expressions: …",
            _G + "Scanned <count> topics to refresh regular expressions …",
            _G + "Couldn't parse regular expression …",
            _G + "Committing offsets <offsets> for partition …",
            _G + "Committing transactional offsets <offsets> for partition …",
            _G + "Expired offset for …",
            _G + "Clearing shutdown requested for …",
            _G + "Size of assignment epochs <size> is …",
            _G + "Couldn't update regular expression due to: …",
            _G + "Received result of regular expression resolution but …",
            _G + "Cannot compute delayed target assignment: …",
            _G + "Removing expired offset and metadata for …",
            _G + "Assignment delayed due to …",
            _M + "Member initialized the topology with epoch …",
            _M + "Member joined with currently initialized topology …",
            _M + "Configuring the topology …",
            _M + "Member joined with stale topology epoch …",
            _M + "Valid topic configuration found in …",
            _M + "Topic configuration failed for topology epoch …",
        )
    ),
)

_OTHER_GROUPS: Final = tuple(
    (Kind.HOUSEKEEPING, template, "4.0-")
    for template in (
        "hare group…",
        "tombstone without group - …",
        "tombstone for groupId - …",
        "Received error while calling initialize state for …",
        "Failed to retrieve deleteState request parameters …",
        "Unable to cleanup state for the deleted topics …",
        "Partition end offset fetch failed for topicPartition …",
        _M + "Shutdown requested for the streams application",
        _G + "updatedMember is unexpectedly null …",
        _G + "Setting the process ID of …",
        "There is not enough available capacity. You should increase …",
        "Expecting state changelog topic partitions …",
        "Unable to determine number of partitions for …",
        "Determined number of partitions for …",
    )
)
"""The work for share groups and streams groups."""

SERVER: Final = (*_SCALA, *_RUNTIME, *_NEW_PROTOCOL, *_OTHER_GROUPS)
