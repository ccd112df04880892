"""Protocol types that kohort does not know: bytes in, the same bytes out.

In: an application's names and bytes. Out: the protocols that its member offers. Must not know: the
meaning of the bytes. A member may join any group of any type; offered and assigned bytes then
belong to the application.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.model.errors import ConfigError
from kohort.model.ids import ProtocolName
from kohort.model.join import JoinProtocol


def opaque_protocols(offers: Iterable[tuple[str, bytes]]) -> tuple[JoinProtocol, ...]:
    """Offer the application's own bytes under its own names, best first.

    Raises:
        ConfigError: no name, an empty name or a repeated name (Kafka's coordinator refuses those).
    """
    protocols = tuple(JoinProtocol(ProtocolName(name), metadata) for name, metadata in offers)
    names = [protocol.name for protocol in protocols]
    if not names or not all(names) or len(set(names)) != len(names):
        raise ConfigError(
            f"a member offers at least one protocol, each with a name of its own; not {names}"
        )
    return protocols
