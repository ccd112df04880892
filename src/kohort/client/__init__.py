"""Layer 6. Threads and sockets around the member and consumer cores; the public Consumer."""
