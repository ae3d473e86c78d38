"""Links to other servers: routes to the members of a cluster, leafnodes to hubs and from leafs.

In come the ``cluster`` and ``leafnodes`` terms, connections, and what clients subscribe to here.
Out go interest and messages: the hub moves the messages of a link as it moves those of clients
(``kernel/_linked.pyx``), and this package decides who the other server is, what it may say, and
what it is told of. ``demand.py`` and ``narrowing.py`` decide on values alone.
"""
