-- Close stages whose last members have ended, and open those behind them. Called by advance.advance() behind outcomes, and
-- by callers that begin or seal. Returns what pgqueue_advance() does.
SELECT told.kind, told.name
FROM pgqueue_advance(%(stage_ids)s::bigint[], %(with_deaths)s::bigint[], %(worker_id)s::bigint) AS told;
