-- The next results that a stage has collected, in the order of the ids of its members. Called by handle.results_of().
-- Locks nothing; leans on pgqueue_stage_results_stage. Returns ids and results.
SELECT collected.job_id, collected.result::text
FROM pgqueue_stage_results AS collected
WHERE (collected.stage_id, collected.job_id) > (%(stage_id)s::bigint, %(after)s::bigint)
  AND collected.stage_id < %(stage_id)s::bigint + 1  -- no one value: else by primary key, from one result to the next
ORDER BY collected.stage_id, collected.job_id
LIMIT 1000;
