"""``millstream kv``: key-value buckets."""
