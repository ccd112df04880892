"""All known bugs. Bugs in features that do not exist yet are listed in ``pending.toml``."""

from __future__ import annotations

from tests.lab.known_bugs.coordinator import COORDINATOR
from tests.lab.known_bugs.durability import DURABILITY
from tests.lab.known_bugs.member import MEMBER
from tests.lab.known_bugs.policies import POLICIES

KNOWN_BUGS = (*COORDINATOR, *DURABILITY, *MEMBER, *POLICIES)
