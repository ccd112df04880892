"""One line of a log: its frame, time, fields and values."""
