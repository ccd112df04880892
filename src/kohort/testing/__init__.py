"""Layer 7. Pytest plugin and fixtures for users."""
