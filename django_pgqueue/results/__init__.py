"""For those who enqueued: handles, lookup of one job in any table, waiting for its end."""
