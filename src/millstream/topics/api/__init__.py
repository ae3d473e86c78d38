"""The handlers of the HTTP API, a module for each noun of the path.

Comes in: a request and its ``Caller``. Goes out: an answer, or an error with its code. Imports
``topics.page``, ``topics.limits`` and the shared ``topics.context``, never ``topics.watch``.
"""
