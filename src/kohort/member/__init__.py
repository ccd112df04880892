"""Layer 3. The sans-IO generic group member: events in, effects out.

Knows nothing of partitions.
"""
