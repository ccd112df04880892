"""The promises that a history is held to, grouped by what they are about."""
