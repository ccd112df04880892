"""Sockets, threads, TLS and logins under the clients."""
