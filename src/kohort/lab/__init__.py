"""Layer 6. A simulated world that drives the real engines under virtual time; pure, given a seed."""
