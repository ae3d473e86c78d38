"""``millstream stream``: look at streams, make, change, copy and remove them."""
