"""Streams that follow other streams: mirrors and sources, page by page, each record once.

Comes in: pages of the origin, or deliveries of a consumer there. Goes out: appends, and the
position that was reached. Imports ``streams.publishing`` and what is below it.
"""
