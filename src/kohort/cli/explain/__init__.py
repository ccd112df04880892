"""``kohort explain`` and ``kohort what-if``."""
