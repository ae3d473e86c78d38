"""What somebody who runs a server needs: a look at it, checks, users, keys, contexts."""
