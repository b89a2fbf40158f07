"""oncecast beside Redis, NATS and RabbitMQ: real servers, one run. See docs/benchmarks.md."""
