"""Layer 4. Kafka frames and messages to and from events. API versions stop here."""
