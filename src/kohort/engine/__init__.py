"""Layer 5. A core wired to its connections and journal.

Bytes and tickets in, bytes and tickets out. No IO.
"""
