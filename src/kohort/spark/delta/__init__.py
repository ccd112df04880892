"""The Delta table: its ledger, commits, clean-up and rewinds."""
