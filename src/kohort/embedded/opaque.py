"""Protocol types that kohort does not know: bytes in, the same bytes out.

A member may take part in any group under any type; what it offers and what it is given then belongs
to the application. Must not know: what the bytes say.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.model.errors import ConfigError
from kohort.model.ids import ProtocolName
from kohort.model.join import JoinProtocol


def opaque_protocols(offers: Iterable[tuple[str, bytes]]) -> tuple[JoinProtocol, ...]:
    """Offer the application's own bytes under its own names, best first.

    Raises:
        ConfigError: no name, an empty one, or one given twice (Kafka's coordinator refuses those).
    """
    protocols = tuple(JoinProtocol(ProtocolName(name), metadata) for name, metadata in offers)
    names = [protocol.name for protocol in protocols]
    if not names or not all(names) or len(set(names)) != len(names):
        raise ConfigError(
            f"a member offers at least one protocol, each with a name of its own; not {names}"
        )
    return protocols
