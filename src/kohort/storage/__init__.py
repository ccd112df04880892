"""Layer 4. Partition logs, record batches, segments, and the records of __consumer_offsets."""
