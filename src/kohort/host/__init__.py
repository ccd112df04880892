"""Layer 4. Clock, entropy, settings, logging: the only files that ask the machine."""
