-- The job that a call has met when it was handed over. Called by lookup.find() where no job has the id of the call. No
-- row where it was not handed over, or where that is forgotten.
SELECT job_id FROM pgqueue_handed_over WHERE id = %(id)s::bigint;
