"""What serves one account's JetStream API, whatever is asked.

In: the parts that all accounts share, and an account's subjects. Out: tasks for requests that wait,
advisories, and answers to direct gets. The routes and handlers above import it; it imports none.
"""
