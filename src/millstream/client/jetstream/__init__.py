"""The JetStream API of any NATS server: streams, consumers and why those wait."""
