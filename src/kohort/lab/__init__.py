"""Layer 6. A simulated world driving the real engines under virtual time; pure, given a seed."""
