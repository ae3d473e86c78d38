"""When, and in what order.

``ready_set.py`` (weighted turns by priority) and ``governor.py`` (pressure to measures) decide,
``scheduler.py`` carries it out; ``pressure_watch.py`` looks at the load for the governor;
``timers.py`` keeps all deadlines. Comes in: work with a rank. Goes out: calls, each in its turn.
"""
