"""What goes next to a consumer's clients, and when: position, filters, losses, pace and pauses.

In: a stream, a configuration, and the ledger's redeliveries. Out: parcels of records.
"""
