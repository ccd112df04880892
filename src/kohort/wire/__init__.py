"""Layer 4. Converts Kafka's frames and messages to events and back. API versions stop here."""
