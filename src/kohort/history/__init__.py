"""Layer 3. Reconstruction of ownership, cost and cause from facts, and the checker of invariants."""
