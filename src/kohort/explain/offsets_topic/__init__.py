"""Groups as the records of ``__consumer_offsets`` tell them."""
