"""Messages of the logs of brokers and clients, and the search for the message of a line."""
