"""The Kafka front end: lets unmodified Kafka clients use topics (KAF)."""
