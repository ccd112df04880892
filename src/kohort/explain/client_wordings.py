"""Messages of clients about their groups: Java, librdkafka, kafka-python, aiokafka and others.

In: nothing. Out: `CLIENT`, the most special message of each program first. Must not know: frames,
brokers. The other programs are franz-go, KafkaJS and brod.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind, Side
from kohort.explain.templates import Wording, wording

_GENERATION = "Generation{generationId=<generation>, memberId='<member>', protocol=<protocol>}"

_JAVA: Final = (
    (Kind.REQUESTED, "Request joining group due to: <reason>"),
    (Kind.JOINED, f"Successfully joined group with generation {_GENERATION}"),
    (Kind.JOINED, "Successfully joined group with generation <generation>"),
    (Kind.SYNCED, f"Successfully synced group in generation {_GENERATION}"),
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
)

_LIBRDKAFKA: Final = (
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
    (Kind.COMMIT_FAILED, "Offset commit (<why>) failed for <share> partition(s)<reason>"),
    (Kind.COMMIT_FAILED, "failed to commit offset: <reason>"),
    (Kind.WRONG_CALL, 'Group "<group>": application *assign() call failed: <reason>'),
    (Kind.PROGRESS, 'Group "<group>" changed join state <previous> -> <state>'),
    (Kind.LEAVING, 'Group "<group>": leave (in state <state>)'),
    (Kind.PROGRESS, 'Group "<group>": updating member id "<old>" -> "<member>"'),
    (Kind.REQUESTED, 'Group "<group>": Rejoining group with <owned> owned partition(s): <reason>'),
    (Kind.REQUESTED, 'Group "<group>": Rejoining group without an assignment: <reason>'),
    (
        Kind.JOINING,
        'Joining group "<group>" with <topics> subscribed topic(s) and member id "<member>"',
    ),
    (Kind.PROGRESS, 'Group "<group>": join with <topics> subscribed topic(s)'),
    (
        Kind.JOINED,
        "JoinGroup response: GenerationId <generation>, Protocol <protocol>, LeaderId <leader>, my "
        "MemberId <member>, member metadata count <count>: <reason>",
    ),
    (Kind.PROGRESS, 'Heartbeat for group "<group>" generation id <generation>'),
    (Kind.HEARTBEAT_REBALANCING, "HeartbeatRequest failed: Broker: Group rebalance in progress…"),
    (
        Kind.HEARTBEAT_REBALANCING,
        'Group "<group>" heartbeat error response in state <state>: <reason>',
    ),
    (Kind.REVOKED, 'Group "<group>": delegating revoke of <count> partition(s) to application…'),
    (Kind.ADDED, 'Group "<group>": delegating assign of <count> partition(s) to application…'),
    (Kind.UNSUPPORTED, "ConsumerGroupHeartbeat fatal error: <reason>"),
    (Kind.PROGRESS, "OffsetCommit for <count> partition(s): <why>: returned: <reason>"),
)

_PYTHON: Final = (
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
    (Kind.PROGRESS, "Elected group leader -- performing partition assignments using <assignor>"),
    (Kind.JOIN_FAILED, "Error sending JoinGroupRequest_<version> to node <node> [<reason>]…"),
    (Kind.JOINING, "(Re-)joining group <group>"),
)

_AIOKAFKA: Final = (
    (Kind.SESSION_EXPIRED, "Heartbeat session expired - marking coordinator dead"),
    (Kind.UNKNOWN_MEMBER, "Heartbeat failed: local member_id was not recognized; resetting and …"),
    (Kind.COORDINATOR_LOST, "Marking the coordinator dead (node <node>)for group <group>"),
    (Kind.JOINED, "Joined group '<group>' (generation <generation>) with member_id <member>"),
    (
        Kind.COMMIT_FAILED,
        "OffsetCommit failed for group <group> due to group error (<reason>), will …",
    ),
)

_FRANZ_GO: Final = (
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
)

_KAFKAJS: Final = (
    (Kind.SYNCED, "[ConsumerGroup] Consumer has joined the group"),
    (Kind.HEARTBEAT_REBALANCING, "[Runner] The group is rebalancing, re-joining"),
)

_BROD: Final = (
    (
        Kind.PROGRESS,
        "group coordinator (groupId=<group>,memberId=<member>,generation=<generation>,pid=<pid>):…",
    ),
    (Kind.REQUESTED, "re-joining group, reason:<reason>"),
    (Kind.JOIN_FAILED, "failed to join group"),
)

_MAKERS: Final = (
    ("librdkafka", _LIBRDKAFKA),
    ("aiokafka", _AIOKAFKA),
    ("kafka-python", _PYTHON),
    ("franz-go", _FRANZ_GO),
    ("KafkaJS", _KAFKAJS),
    ("brod", _BROD),
    ("Java", (*_JAVA, (Kind.JOINING, "(Re-)joining group"))),
)

CLIENT: Final[tuple[Wording, ...]] = tuple(
    wording(kind, Side.CLIENT, maker, template)
    for maker, table in _MAKERS
    for kind, template in table
)
