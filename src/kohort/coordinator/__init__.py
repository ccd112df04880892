"""Layer 3. The sans-IO group coordinator: events in, effects out.

Knows nothing of sockets, versions or files.
"""
