"""Plain-Python twins of the compiled modules, for property tests; never used to serve."""
