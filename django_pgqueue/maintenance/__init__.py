"""Bounded passes that any worker may do at any time: promote, reap, expire, prune, partitions."""
