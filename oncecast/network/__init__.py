"""Run a stack on asyncio: connections, handshake, framing, TLS and timers."""
