"""Layer 5. Reads records of partitions: what to fetch, and record batches as Arrow columns.

No IO. The client and Spark fetch on their connections what this room tells them.
"""
