"""HTTP as values and bytes, and the asyncio protocol that moves them."""
