"""Routers: records of one stream copied into another as they come.

``choice.py`` decides what a step copies; ``forwarder.py`` carries out the steps of one source in
one commit; ``turns.py`` says when. Comes in: commits of the source. Goes out: copies, logged as one
frame that names their origin.
"""
