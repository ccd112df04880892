"""``kohort lab``."""
