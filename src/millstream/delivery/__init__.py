"""When, and in what order.

``ready_set.py`` (weighted turns by priority) and ``governor.py`` (pressure to measures) decide,
``scheduler.py`` carries it out; ``pressure_watch.py`` looks at the load for the governor;
``key_lanes.py`` decides whose turn it is among records of one key (``record_key.py``);
``timers.py`` keeps all deadlines. Comes in: work with a rank. Goes out: calls, each in its turn.
"""
