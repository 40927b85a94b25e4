"""What may run now: concurrency keys, limits of queues, fairness."""
