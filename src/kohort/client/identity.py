"""The identity of a dynamic member: a name that outlives the process.

In: the setting ``kohort.member.identity``. Out: the number that travels in subscriptions. Must not
know: groups, waits.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError
from kohort.policies.losses import identity_of

_FILE: Final = "file:"
_HOST: Final = "host"
_MOST_BYTES: Final = 1_000


def member_identity(setting: str) -> int | None:
    """The number of the identity; None without one.

    Args:
        setting: a text; ``file:PATH`` for the text in a file; ``host`` for the host's name, which
            is the name of the pod in Kubernetes; or nothing.

    Raises:
        ConfigError: the file cannot be read, is empty, or has more than 1,000 bytes.
    """
    text = setting.strip()
    if text == _HOST:
        text = socket.gethostname()
    elif text.startswith(_FILE):
        text = _text_of(Path(text.removeprefix(_FILE)))
    return identity_of(text) if text else None


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"kohort.member.identity is {_FILE}{path}, but the file cannot be read: {error}"
        ) from error
    if not text.strip() or len(text) > _MOST_BYTES:
        raise ConfigError(
            f"kohort.member.identity is {_FILE}{path}, expected a file of 1 to {_MOST_BYTES} bytes"
        )
    return text.decode(errors="replace").strip()
