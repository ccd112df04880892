"""Groups of verifiable consumers on new topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.verifiable.group import SESSION_MS, VerifiableGroup

from kohort.client.admin import Admin

PARTITIONS = 6
MakeGroup = Callable[..., VerifiableGroup]


@pytest.fixture
def make_group(tmp_path: Path) -> Iterator[MakeGroup]:
    """Makes a topic and a group: ``make_group(bootstrap)``."""
    with ExitStack() as groups:

        def make(
            bootstrap: str, *, copies: int = 1, session_ms: int = SESSION_MS
        ) -> VerifiableGroup:
            name = f"v-{uuid.uuid4().hex[:8]}"
            with Admin(bootstrap_servers=bootstrap) as admin:
                admin.create_topic(name, PARTITIONS, copies)
            group = VerifiableGroup(bootstrap, name, PARTITIONS, tmp_path, session_ms)
            return groups.enter_context(group)

        yield make
