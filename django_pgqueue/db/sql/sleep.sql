-- Let all sessions see that this one waits for notifications of these queues; an empty name stands for any. Called by the
-- consumer, which looks for jobs once more after it, and by the listener. Takes locks that last until awake.sql or the
-- end of the session, which no notification reaches any more. Never waits: false means to try again.
SELECT bool_and(pg_try_advisory_lock_shared(1885827445, hashtext(queue.name)))
FROM unnest(%(queues)s::text[]) AS queue (name);
