"""The JetStream API: subjects in, JSON out."""
