-- Have something done to many jobs in the background. Called by bulk_actions.begin() for staff, in the caller's
-- transaction. Returns the id of the bulk action.
INSERT INTO pgqueue_bulk_actions (action, source, by, filter, params, rate, expected)
VALUES (
    %(action)s::text, %(source)s::text, %(by)s::text, %(filter)s::jsonb, %(params)s::jsonb, %(rate)s::double precision,
    %(expected)s::bigint
)
RETURNING id;
