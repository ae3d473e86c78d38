"""The server as a member of a fleet: how it stands by, begins to serve, and stops at once.

Comes in: options, and a ``FleetMember``. Goes out: engines for the store, and a room where those
who come to a standby are told who serves. Nothing of this is imported without a fleet.
"""
