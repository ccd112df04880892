"""Layer 1. Ids, instants, deadlines, errors, ownership, configs, facts; imports no other room."""
