"""The files of a table: written, read, described, verified."""
