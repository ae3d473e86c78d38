"""What the HTTP API bounds: topics, bytes, open watches, requests under way, repeated writes.

Comes in: who asks for what. Goes out: yes, or an error that names the limit.
"""
