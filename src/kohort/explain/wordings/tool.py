"""Messages of ``kafka-consumer-groups`` beside its tables, and groups as an old formatter has them.

In: nothing. Out: `TOOL`. Must not know: frames, tables.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind, Side
from kohort.explain.tables import MAKER
from kohort.explain.wordings.templates import Wording, wording

TOOL: Final[tuple[Wording, ...]] = tuple(
    wording(Kind.LISTED_GROUP, Side.TOOL, MAKER, template)
    for template in (
        "Consumer group '<group>' has no active members",
        "Consumer group '<group>' is rebalancing",
        "Consumer group '<group>' does not exist",
        # GroupMetadataMessageFormatter of Kafka before 3.8: without times and assignments.
        "GroupMetadata(groupId=<group>, generation=<generation>, protocolType=<type>, "
        "currentState=<state>, members=Map(<list>))",
    )
)
