"""Layer 3. The explanation of a group's history from logs of brokers and clients.

In: lines. Out: events, rebalances with their causes, patterns with the lines that prove them. Must
not know: files, terminals, kohort's own facts.
"""
