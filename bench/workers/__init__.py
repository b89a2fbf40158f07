"""Compare workers that share a queue with those of Redis, NATS and RabbitMQ."""
