"""Pipeline files: YAML in, a checked ``spec`` out, or a problem with its line. No Spark here."""
