"""The blocking client that the command line and Spark use."""
