"""Health and statistics of the server, in nats-server's shapes."""
