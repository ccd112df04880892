"""The version of kohort, for rooms below the package's public names."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
