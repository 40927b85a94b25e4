-- Wake idle workers. Follows the INSERT of a job, see notify.wake_up(), after its commit. Locks no row; NOTIFY holds a
-- lock of the whole cluster at commit, which is short because nothing here goes to disk.
SELECT pg_notify('pgqueue_jobs', %(payload)s::text);
