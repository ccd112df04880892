"""Scenarios from practice, one file each, and their registry."""
