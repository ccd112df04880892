"""Layer 6. The embedded Kafka-compatible broker.

Asyncio shell around the coordinator engine and the logs.
"""
