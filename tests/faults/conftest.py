"""What fault tests share: raw connections, and brokers in processes of their own."""

from __future__ import annotations

from tests.broker.conftest import connect, raw

__all__ = ["connect", "raw"]
