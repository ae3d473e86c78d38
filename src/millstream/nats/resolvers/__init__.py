"""Where account JWTs come from while the server runs.

Requests of the system account bring, list and delete them; a directory keeps them; a URL or other
servers are asked for those that are missing when a client comes.
"""
