"""``kohort pipeline``, ``kohort table`` and ``kohort spark``."""
