"""Config in, connected parts out; start, reload, drain, stop.

``build.py`` is the only module that knows all parts. ``server.py`` starts them, announces the
addresses, follows orders (signals) and returns the exit code. ``opening.py`` binds the HTTP port
before recovery, and ``waiting_room.py`` answers there meanwhile.
"""
