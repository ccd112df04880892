"""Promises about answers: each request gets one, and descriptions of a group are true.

In: requests and answers as coordinators and clients record them. Out: findings. Must not know: the
meaning of requests.
"""

from __future__ import annotations

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.views import GroupView
from kohort.history.world import World
from kohort.model.client_facts import AnswerUnreadable, Outcome, RequestSent, ResponseReceived
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.wire_facts import AnswerSent, RequestReceived
from kohort.model.world_facts import GroupDescribed


class DescribedAsItIs(Check):
    """ListGroups and DescribeGroups tell the state, the members and the assignments of the group.

    Operators and dashboards decide by these answers; a member that is listed but gone, or an
    assignment of an older generation, misleads them.
    """

    number, name, heading = 55, "described-as-it-is", Heading.LIVENESS
    source, feature, kafka = "Kafka's protocol guide", COORDINATOR, Kafka.YES

    @on(GroupDescribed)
    def described(self, recorded: Recorded, fact: GroupDescribed) -> None:
        """Compare the answers with the facts of the coordinator."""
        group = self.world.groups.get(fact.group_id)
        if group is None or not group.known or self.world.loading:
            return
        if not self.holds(fact.listed_state == fact.state):
            self.find(f"listed as {fact.listed_state}, is {fact.state}", recorded)
        if fact.state is None:
            if not self.holds(not group.members):
                self.find(
                    f"the group does not exist, but has {len(group.members)} members", recorded
                )
            return
        if not self.holds(fact.state == group.state):
            self.find(f"described as {fact.state}, but the group is {group.state}", recorded)
        members = {member_id for member_id, _ in fact.assignments}
        if not self.holds(members == group.members.keys()):
            self.find(
                f"described with {sorted(members)}, but the members are {sorted(group.members)}",
                recorded,
            )
        self._judge_assignments(recorded, fact, group)

    def _judge_assignments(
        self, recorded: Recorded, fact: GroupDescribed, group: GroupView
    ) -> None:
        stable = group.stable
        if group.state is GroupState.STABLE and stable is not None and stable is group.generation:
            if not self.holds(fact.protocol_name == stable.protocol_name):
                told, name = fact.protocol_name, stable.protocol_name
                self.find(f"described with {told}, but the protocol is {name}", recorded)
            if stable.assigned_at is None:
                return  # the write of the assignment failed, but its bytes were on the disk
            wrong = [m for m, data in fact.assignments if data != stable.assignments.get(m, b"")]
            if not self.holds(not wrong):
                self.find(f"described with another assignment of {', '.join(wrong)}", recorded)


class OneAnswerEach(Check):
    """A request gets at most one answer, which carries its correlation id; answers keep order.

    Kafka's clients match answers to requests by their order on a connection. After one answer too
    many, or one out of order, a client reads each later answer as the answer to another request. A
    client that cannot read an answer is a finding too: TCP delivers bytes undamaged.
    """

    number, name, heading = 51, "one-answer-each", Heading.LIVENESS
    source, feature, kafka = "Kafka's protocol guide; reliability 1.3 (51)", COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._queues: dict[tuple[str, int, int], list[int]] = {}

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """A coordinator answers."""
        if not self.world.boots and not self.world.requests:
            return
        found = self.world.requests.get(self.world.request_key(recorded, fact.token, fact.group_id))
        asked = None if found is None else found.fact
        if not self.holds(asked is not None):
            self.find(f"an answer to {fact.api} for which no request waits", recorded)
        if isinstance(asked, RequestReceived):
            same = (asked.correlation_id, asked.connection, asked.api) == (
                fact.correlation_id,
                fact.connection,
                fact.api,
            )
            if not self.holds(same):
                self.find(f"{fact.api} was answered as another request", recorded)

    @on(RequestSent)
    def sent(self, recorded: Recorded, fact: RequestSent) -> None:
        """A client asks."""
        life = (recorded.source, recorded.incarnation)
        if fact.connection is not None:
            self._queues.setdefault((*life, fact.connection), []).append(fact.request)

    @on(AnswerUnreadable)
    def unreadable(self, recorded: Recorded, fact: AnswerUnreadable) -> None:
        """A client closes a connection because of the bytes that came."""
        self.judged += 1
        self.find(f"{recorded.source} cannot read an answer: {fact.reason}", recorded)

    @on(ResponseReceived)
    def received(self, recorded: Recorded, fact: ResponseReceived) -> None:
        """A client is answered."""
        life = (recorded.source, recorded.incarnation)
        found = self.world.sent.get((*life, fact.request))
        if not self.holds(found is not None):
            self.find(f"an answer to {fact.api} for which no request waits", recorded)
        if found is None or found[1].connection is None:
            return
        queue = self._queues.get((*life, found[1].connection), [])
        if fact.outcome is not Outcome.UNKNOWN:
            if not self.holds(queue[:1] == [fact.request]):
                self.find(f"{fact.api} was answered out of turn", recorded)
        if fact.request in queue:
            queue.remove(fact.request)
