"""``millstream object``: objects of any size in buckets."""
