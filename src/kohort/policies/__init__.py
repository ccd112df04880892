"""Layer 3. Assignors and rebalancing policies: who gets what, in how many rounds.

Pure functions.
"""
