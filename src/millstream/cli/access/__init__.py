"""Which server a command talks to, and as whom: options, contexts and connections."""
