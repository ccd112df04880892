"""What every embedded protocol shares: a name with its bytes.

Here: the value that a member offers to the group, one per protocol name that it can speak. The
bytes were made by an embedded protocol of this room (or by the application) and are opaque to
member, wire and coordinator. Must not know: groups, requests, versions of requests.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.model.ids import ProtocolName


class JoinProtocol(NamedTuple):
    """A protocol name that a member offers in JoinGroup, and the metadata it offers under it.

    The order of several of them is the member's preference, first is best.
    """

    name: ProtocolName
    metadata: bytes
