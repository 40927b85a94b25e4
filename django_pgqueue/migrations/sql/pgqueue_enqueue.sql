-- Enqueue from SQL, as enqueue() does in Python; return the id of the job, or of the one that has its unique key.
-- Called from any language: docs/how-to/enqueue-from-sql.md. The database's clock decides between queued and scheduled.
--
-- A job that is over, because its time is over, it has expired or was killed, gives up the key. One that gives the key
-- up at its start is kept from starting before the caller's transaction has ended. Another session may have changed the
-- job while its lock was waited for: so each test is repeated, and the inner block is a savepoint that gives the lock
-- back. statement_timestamp() is the start of the client's statement, which may be long ago.
CREATE FUNCTION pgqueue_enqueue(
    task text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 10,
    unique_key text DEFAULT NULL,
    unique_until text DEFAULT 'end',
    concurrency_key text DEFAULT NULL,
    concurrency_limit integer DEFAULT 1,
    tags text[] DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    job_id bigint;
    is_over boolean;
    may_start boolean;
BEGIN
    LOOP
        INSERT INTO pgqueue_jobs (
            task, args, kwargs, queue, priority, run_at, max_attempts, unique_key, unique_until, concurrency_key,
            concurrency_limit, tags, status
        )
        VALUES (
            pgqueue_enqueue.task,
            pgqueue_enqueue.args,
            pgqueue_enqueue.kwargs,
            pgqueue_enqueue.queue,
            pgqueue_enqueue.priority,
            COALESCE(pgqueue_enqueue.run_at, statement_timestamp()),
            pgqueue_enqueue.max_attempts,
            pgqueue_enqueue.unique_key,
            CASE WHEN pgqueue_enqueue.unique_key IS NOT NULL THEN pgqueue_enqueue.unique_until END,
            pgqueue_enqueue.concurrency_key,
            CASE WHEN pgqueue_enqueue.concurrency_key IS NOT NULL THEN pgqueue_enqueue.concurrency_limit END,
            pgqueue_enqueue.tags,
            CASE
                WHEN pgqueue_enqueue.run_at > statement_timestamp() THEN 'scheduled'
                WHEN pgqueue_enqueue.concurrency_key IS NOT NULL THEN 'limited'
                ELSE 'queued'
            END
        )
        ON CONFLICT (unique_key) WHERE unique_until IN ('end', 'start') DO NOTHING
        RETURNING id INTO job_id;
        IF FOUND THEN
            RETURN job_id;
        END IF;
        SELECT
            job.id,
            CASE
                WHEN job.status = 'reserved' THEN job.run_at <= clock_timestamp()
                ELSE job.lease_token = 0
                    AND (job.kill_requested_at IS NOT NULL OR COALESCE(job.expires_at <= clock_timestamp(), false))
            END,
            job.unique_until = 'start'
        INTO job_id, is_over, may_start
        FROM pgqueue_jobs AS job
        WHERE job.unique_key = pgqueue_enqueue.unique_key AND job.unique_until IN ('end', 'start');
        CONTINUE WHEN NOT FOUND;
        IF NOT is_over AND NOT may_start THEN
            RETURN job_id;
        END IF;
        BEGIN
            IF is_over THEN
                UPDATE pgqueue_jobs AS job
                SET unique_until = CASE WHEN job.unique_until = 'end' THEN 'given_up' ELSE 'started' END
                WHERE job.id = job_id
                  AND job.unique_until IN ('end', 'start')
                  AND job.lease_token = 0
                  AND CASE
                      WHEN job.status = 'reserved' THEN job.run_at <= clock_timestamp()
                      ELSE job.expires_at <= clock_timestamp() OR job.kill_requested_at IS NOT NULL
                  END;
            ELSE
                PERFORM
                FROM pgqueue_jobs AS job
                WHERE job.id = job_id
                  AND job.unique_until = 'start'
                  AND job.lease_token = 0
                  AND (job.expires_at > clock_timestamp()) IS NOT FALSE
                  AND job.kill_requested_at IS NULL
                FOR SHARE;
            END IF;
            IF NOT FOUND THEN
                RAISE SQLSTATE 'PQ001';
            END IF;
            IF NOT is_over THEN
                RETURN job_id;
            END IF;
        EXCEPTION
            WHEN SQLSTATE 'PQ001' THEN NULL;
        END;
    END LOOP;
END
$$;
