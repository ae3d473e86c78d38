"""Commands about a fleet: what its object store says. Comes in: a URL. Goes out: text or JSON."""
