"""Records of chosen partitions: as objects by librdkafka, as Arrow columns by kohort."""
