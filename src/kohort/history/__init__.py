"""Layer 3. Ownership, cost and cause computed from facts, and the checker of invariants."""
