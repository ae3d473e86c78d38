"""HTTP/1.1 requests and responses as values, and the asyncio protocol that moves them."""
