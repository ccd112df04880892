"""The whole zoo. Mutations of features that do not exist yet are in ``pending.toml``."""

from __future__ import annotations

from tests.lab.zoo.coordinator import COORDINATOR
from tests.lab.zoo.durability import DURABILITY
from tests.lab.zoo.member import MEMBER
from tests.lab.zoo.policies import POLICIES

ZOO = (*COORDINATOR, *DURABILITY, *MEMBER, *POLICIES)
