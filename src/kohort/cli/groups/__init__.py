"""``kohort groups``."""
