"""Flow control: concurrency keys, pauses and limits of queues, fairness."""
