"""Serving clients that ask: their requests, the line that they wait in, and whose turn it is.

In: pull requests, and parcels from the feed. Out: parcels and statuses through the outlet.
"""
