"""``millstream consumer``: look at consumers, make, change, pause and remove them."""
