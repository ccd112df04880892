"""The parts of ``Consumer`` and ``AsyncConsumer``."""
