"""Who is it, and what may it touch?

Decides on values alone. Comes in: what a client presented, users, keys and JWTs. Goes out: an
identity, its rights, and which records it may see.
"""
