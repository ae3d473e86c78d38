"""Accounts over NATS: a subject space for each, and what they share by exports and imports.

Comes in: account values. Goes out: sinks in the spaces.
"""
