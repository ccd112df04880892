"""Layer 5. Visible batches of Fetch answers, and record batches as Arrow columns.

No IO: the client and Spark send the requests.
"""
