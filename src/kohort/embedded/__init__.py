"""Layer 2. The protocols inside the opaque bytes of JoinGroup and SyncGroup."""
