"""Routers: records of one stream copied into another as they come."""
