"""Lines of librdkafka's ``debug=cgrp`` that the main table leaves out.

Lines of old versions, of the new protocol (KIP-848), of assignments and of assignors.

In: nothing. Out: `LIBRDKAFKA_DETAILS`. Must not know: frames, other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

_TOLD: Final = (
    (Kind.COORDINATOR_FOUND, 'Group "<group>" management assigned to broker <node>'),
    (Kind.PROGRESS, 'Group "<group>" management unassigned from broker handle <node>'),
    (Kind.PROGRESS, 'Group "<group>" management reassigned from broker (none) to <node>'),
    (Kind.PROGRESS, 'Group "<group>" management reassigned from broker :0/internal to <node>'),
    (Kind.PROGRESS, 'Group "<group>" management reassigned from broker <old>/bootstrap to <node>'),
    (Kind.PROGRESS, 'Group "<group>" management assigned to broker :0/internal'),
    (Kind.PROGRESS, 'Group "<group>" management assigned to broker <node>/bootstrap'),
    (Kind.PROGRESS, 'Group "<group>" changing coordinator -1 -> <coordinator>'),
    (Kind.COORDINATOR_LOST, 'Group "<group>" changing coordinator <previous> -> -1'),
    (Kind.COORDINATOR_LOST, 'Group "<group>" management reassigned from broker <old> to <node>'),
    (Kind.COORDINATOR_LOST, 'Group "<group>" GroupCoordinator response error: <reason>'),
    (Kind.COORDINATOR_LOST, "FindCoordinator response error: <reason>"),
    (Kind.COORDINATOR_LOST, "Coordinator connection is still down: querying for new coordinator"),
    (Kind.LEAVING, 'Group "<group>": leave'),
    (Kind.LEAVING, "Share consumer: leaving group"),
    (Kind.REQUESTED, 'Group "<group>" rejoining in join-state <state> with<rest> an assignment'),
    (Kind.REQUESTED, 'Group "<group>": Joining group: <reason>'),
    (Kind.JOINING, 'Joining group "<group>" with <topics> subscribed topic(s)'),
    (
        Kind.REVOKED,
        'Group "<group>": internal incremental unassign of <count> partition(s) failed: <reason>: '
        "unassigning all partitions and rejoining",
    ),
    (
        Kind.WRONG_CALL,
        'Group "<group>": internal incremental assign of <count> partition(s) failed: <reason>: '
        "unassigning all partitions and rejoining",
    ),
    (
        Kind.WRONG_CALL,
        'Group "<group>": internal assign of <count> partition(s) failed: <reason>: unassigning '
        "all partitions and rejoining",
    ),
    (Kind.LOST, "Revoking assignment as lost an rejoining in join state <state>"),
    (
        Kind.CLIENT_FENCED,
        "Fatal consumer error: Broker: Static consumer fenced by other consumer with same "
        "group.instance.id",
    ),
    (Kind.COMMIT_FAILED, "OffsetCommit failed for <topic> at offset <offset>: <reason>"),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for <topic> at offset <offset> in join-state <state>: <reason>",
    ),
    (Kind.COMMIT_FAILED, "OffsetCommit internal error: <reason>"),
    # There was nothing to commit.
    (Kind.PROGRESS, "OffsetCommit internal error: Local: No offset stored"),
    (Kind.UNSUPPORTED, "ShareGroupHeartbeat fatal error: <reason>"),
    (Kind.UNKNOWN_MEMBER, "ShareGroupHeartbeat failed due to: <reason>: will rejoin the group"),
    (Kind.COORDINATOR_LOST, "ShareGroupHeartbeat failed due to coordinator (<node>) <reason>"),
)

_GROUP: Final = (
    "<what>: new version barrier …",
    "marking the coordinator dead: …",
    "delegating <count> of <owned> partition(s) to application rebalance callback on queue …",
    "delegating assign of <count> partition(s) to application rebalance callback on queue …",
    "delegating revoke of <count> partition(s) to application rebalance callback on queue …",
    "no matching topics based on …",
    "clearing subscribed topics list …",
    "no topics in metadata matched subscription",
    "timing out <count> op(s) in wait-for-coordinator queue",
    "timed out <count> op(s), …",
    "waiting for <what> toppar(s), …",
    "ignoring Offset fetch response for …",
    "not starting fetchers for …",
    "starting fetchers for …",
    "unassigning <count> partition(s) …",
    "assigning <count> partition(s) in join state …",
    "no longer leader: not running assignor",
    "ops queue is disabled, not delegating partition …",
    "internal incremental <verb> of <count> partition(s) failed: …",
    "internal <verb> of <count> partition(s) failed: …",
    "unexpected instruction to revoke current assignment and rebalance …",
    "modifying subscription of size …",
    "postponing subscribe until previous rebalance completes …",
    "postponing unsubscribe until previous rebalance completes …",
    "invoking waiting postponed subscribe",
    "invoking waiting postponed unsubscribe",
    "enqueue partition add for …",
    "enqueue partition remove for …",
    "Consumer <what>: treating assign as unassign",
    "joining with group.instance.id …",
    "unable to commit: …",
)
"""After ``Group "name": ``."""

_NAMED: Final = (
    'Group "<group>" in join state <state> with<rest> subscription',
    'Group "<group>" running <assignor> assignment for <members> member(s):',
    'Group "<group>" running <assignor> assignor for <members> member(s) and …',
    'Group "<group>" <assignor> assignment failed for <members> member(s): …',
    'Group "<group>" <assignor> assignment for <members> member(s) finished in …',
    'Elected leader for group "<group>" with <members> member(s)',
    'Failed to parse MemberMetadata for "<member>": …',
    "JoinGroup response: discarding outdated request …",
    "SyncGroup response: discarding outdated request …",
    'Failed to fetch committed offset for group "<group>" topic …',
    'Failed to fetch committed offsets for partitions in group "<group>": …',
    'Failed to fetch committed offsets for <count> partition(s) in group "<group>": …',
    "Committing offsets for <count> partition(s): …",
    'Deferring "<why>" offset commit for <count> partition(s) in state …',
    "Unassign not done yet …",
    "Consumer group sub-system terminated…",
    "KIP-848 Consumer Group Protocol is in …",
    "ConsumerGroupHeartbeat response error in state …",
    "ConsumerGroupHeartbeat response received in state …",
    "ConsumerGroupHeartbeat response received target assignment …",
    "ShareGroupHeartbeat response error in state …",
    "ShareGroupHeartbeat response received …",
    "Reconciliation in progress, postponing next one",
    "Reconciliation starts with new target assignment …",
    "Not reconciling new assignment: …",
    "Metadata available for <count>/<topics> of next target assignment, …",
    "Metadata not found for the assigned topic id: …",
    "Acknowledging target assignment …",
    'Sending new subscription "<topics>"',
    "Expediting next heartbeat, with backoff …",
    "metadata for wildcard subscription is up to date …",
    "metadata for subscription is up to date …",
    "metadata for subscription only available for …",
    "need to refresh metadata <age> but no usable brokers available: …",
    'Assignor ignoring blacklisted topic "<topic>"',
    'Unsupported assignment strategy "<assignor>"',
    "Current assignment of <count> partition(s) with …",
    "Clearing current assignment of <count> partition(s)",
    "No current assignment to clear",
    "Added <count> partition(s) to assignment which now consists of …",
    "Removed <count> partition(s) <rest> from assignment of …",
    "All partitions awaiting stop are now stopped: serving assignment",
    "Pausing fetchers for <count> assigned partition(s): …",
    "Resuming fetchers for <count> assigned partition(s): …",
    "Fetching committed offsets for <count> pending partition(s) in assignment",
    "GroupCoordinator/<node>: Group <group> OffsetFetchRequest(v<version>) for <list> partition(s)",
    "GroupCoordinator/<node>: Fetch committed offsets for <list> partition(s)",
    "Served <count> removed partition(s), with …",
    "Starting pending assigned partition <topic> at …",
    "Querying committed offset for pending assigned partition …",
    "Pending assignment partition <topic> can't fetch committed offset yet …",
    "Ignoring OffsetFetch response for <topic> which is no longer …",
    "Sticky assignor: <rest> is assigned to …",
    "Sticky assignor: Found multiple consumers …",
    "Sticky assignor: Stickiness is violated for topic …",
)

LIBRDKAFKA_DETAILS: Final = (
    *_TOLD,
    *((Kind.PROGRESS, f'Group "<group>": {step}') for step in _GROUP),
    *((Kind.PROGRESS, template) for template in _NAMED),
)
