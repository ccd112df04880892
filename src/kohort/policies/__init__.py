"""Layer 3. Assignors and rebalancing policies: plans for the partitions of a group.

Pure functions.
"""
