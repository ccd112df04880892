"""Rules that find patterns in a group's story."""
