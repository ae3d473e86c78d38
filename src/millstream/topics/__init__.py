"""The HTTP door to streams: topics, as plain functions from a request to an answer."""
