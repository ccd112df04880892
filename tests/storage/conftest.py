"""Silences a warning of kafka-python, an oracle here, about a call that Python 3.11 deprecates."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", "(read|open)_text is deprecated", DeprecationWarning, module="kafka|importlib"
    )
    import kafka  # noqa: F401
