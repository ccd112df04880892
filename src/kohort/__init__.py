"""kohort: consumer groups that do not stop the world.

The public names are loaded on first use, so that ``import kohort`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kohort.model.release import VERSION

if TYPE_CHECKING:
    from kohort.client.async_consumer import AsyncConsumer as AsyncConsumer
    from kohort.client.consumer import Consumer as Consumer
    from kohort.client.dead_letters import DeadLetters as DeadLetters
    from kohort.client.election import LeaderElection as LeaderElection
    from kohort.client.mirror import Mirror as Mirror
    from kohort.client.resources import ResourceGroup as ResourceGroup
    from kohort.client.tasks.stateful_tasks import StatefulTasks as StatefulTasks
    from kohort.client.worker import Worker as Worker

__version__ = VERSION
__all__ = [
    "AsyncConsumer",
    "Consumer",
    "DeadLetters",
    "LeaderElection",
    "Mirror",
    "ResourceGroup",
    "StatefulTasks",
    "Worker",
    "__version__",
]

_LAZY = {
    "AsyncConsumer": "kohort.client.async_consumer",
    "Consumer": "kohort.client.consumer",
    "DeadLetters": "kohort.client.dead_letters",
    "LeaderElection": "kohort.client.election",
    "Mirror": "kohort.client.mirror",
    "ResourceGroup": "kohort.client.resources",
    "StatefulTasks": "kohort.client.tasks.stateful_tasks",
    "Worker": "kohort.client.worker",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'kohort' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
