"""Layer 8. Commands, one file per noun."""
