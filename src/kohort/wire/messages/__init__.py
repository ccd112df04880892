"""Kafka's request and response messages, one file per API key."""
