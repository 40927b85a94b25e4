"""django-pgqueue beside other job queues: same machine, same PostgreSQL server, taking turns.

    python -m benchmarks.peers --install        # a virtual environment for each peer and npm packages, under .peers/
    python -m benchmarks.peers                  # 20,000 no-op jobs, one and two worker processes, three rounds
    python -m benchmarks.peers --only pgqueuer,graphile-worker --jobs 100000 --json peers.json
    python -m benchmarks.peers --shape join     # members of a workflow, and one job behind them; fan: before them
    python -m benchmarks.peers --latency        # how soon an idle worker starts one job

What is measured:

* *Drain*: jobs per second from the first handler call to the moment at which nothing is left in the queue's own tables.
  All jobs are enqueued beforehand, and the server rests (VACUUM, CHECKPOINT) before the workers start.
* *Pick-up latency*: milliseconds from the commit that enqueued a job to the first line of its handler, one job at a
  time on an idle queue with one worker process.

* *Join* and *fan*, of those that have workflows: the same with one job behind N members, or before them.

What makes it fair:

* Each peer runs its own worker with the settings its documentation names for throughput; they and the page they come
  from stand at the top of its module in ``workers/``. Durability is no peer's setting: all tables are logged, and
  commits wait for the disk as the server is configured.
* Each run has a new database. The rounds alternate, and medians are reported, because machines are noisy.
* Handlers count their calls (``tally.py``), and a run in which a job was not called exactly once is marked.
* Peers differ in what they keep of a finished job; the table says so, and django-pgqueue is measured both ways.

Where to look: ``catalogue.py`` names the peers, ``workers/`` runs them, ``measure.py`` takes the time, ``report.py``
prints it. A peer that is not installed or fails is reported with the reason, and the others go on. ``DATABASE_URL``
names another server than the embedded one; its role must be allowed to create databases.
"""
