"""Layer 4. Clock, entropy, settings, logging: the only modules that read the machine's state."""
