-- Wake the workers that sleep on a queue; without such workers, do nothing. Follows the commit of a job, see
-- notify.wake_up(), as a transaction of its own. A session that sleeps shares the lock that this one asks for and does
-- not wait for (sleep.sql). Another one that asks at this moment looks the same: then a notification is sent for
-- nothing. NOTIFY holds a lock of the whole cluster at commit, which is short because nothing here goes to disk.
SELECT pg_notify('pgqueue_jobs', %(payload)s::text)
WHERE NOT (
    pg_try_advisory_xact_lock(1885827445, hashtext(''))
    AND pg_try_advisory_xact_lock(1885827445, hashtext(%(queue)s::text))
);
