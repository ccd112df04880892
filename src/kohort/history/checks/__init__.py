"""The checks of histories, grouped by subject."""
