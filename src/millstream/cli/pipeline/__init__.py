"""``millstream pipeline``: its commands, their options, and how a run looks on a terminal."""
