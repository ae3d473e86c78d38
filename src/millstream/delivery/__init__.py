"""When, and in what order."""
