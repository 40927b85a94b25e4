-- Find one job, whichever table it is in. Called by lookup.find(). Locks nothing; reads by primary keys, of the
-- succeeded in all partitions. The parts are read in this order, and no further than the first row: a live job is one
-- look-up, and of one that has succeeded and holds its unique key, the kept row goes before its reserved one.
-- Returns the columns of lookup.JobState; times that have not come yet are NULL.
SELECT
    job.id, job.status, job.queue, job.task, job.backend, job.priority, job.run_at, job.enqueued_at,
    NULLIF(job.first_started_at, 'epoch') AS started_at, NULLIF(job.started_at, 'epoch') AS last_attempted_at,
    NULL::timestamptz AS ended_at, NULLIF(job.worker_id, 0) AS worker_id, job.attempts, job.lost, NULL::text AS reason, job.tags,
    job.args::text, job.kwargs::text, NULL::text AS result, job.errors::text, job.metadata::text, job.progress::text
FROM pgqueue_jobs AS job
WHERE job.id = %(id)s::bigint AND job.status <> 'reserved'
UNION ALL
SELECT
    dead.id, 'dead', dead.queue, dead.task, dead.backend, dead.priority, dead.run_at, dead.enqueued_at,
    NULLIF(dead.first_started_at, 'epoch'), NULLIF(dead.started_at, 'epoch'),
    dead.died_at, NULLIF(dead.worker_id, 0), dead.attempts, dead.lost, dead.reason, dead.tags,
    dead.args::text, dead.kwargs::text, NULL, dead.errors::text, dead.metadata::text, dead.progress::text
FROM pgqueue_dead_jobs AS dead
WHERE dead.id = %(id)s::bigint
UNION ALL
SELECT
    done.id, 'succeeded', done.queue, done.task, done.backend, done.priority, done.run_at, done.enqueued_at,
    done.first_started_at, done.started_at,
    done.succeeded_at, NULLIF(done.worker_id, 0), done.attempts, done.lost, NULL, done.tags,
    done.args::text, done.kwargs::text, done.result::text, done.errors::text, done.metadata::text, done.progress::text
FROM pgqueue_succeeded_jobs AS done
WHERE done.id = %(id)s::bigint
UNION ALL
SELECT
    held.id, 'reserved', held.queue, held.task, held.backend, held.priority, held.run_at, held.enqueued_at,
    NULLIF(held.first_started_at, 'epoch'), NULLIF(held.started_at, 'epoch'),
    NULL, NULLIF(held.worker_id, 0), held.attempts, held.lost, NULL, held.tags,
    held.args::text, held.kwargs::text, NULL, held.errors::text, held.metadata::text, held.progress::text
FROM pgqueue_jobs AS held
WHERE held.id = %(id)s::bigint AND held.status = 'reserved'
LIMIT 1;
