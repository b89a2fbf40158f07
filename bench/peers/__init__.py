"""Compare oncecast with Redis, NATS and RabbitMQ."""
