"""Reads: a plan becomes partitions (pure), a task turns a partition into Arrow batches.

Comes in: options and offsets. Goes out: Arrow. Runs on driver and executors.
"""
