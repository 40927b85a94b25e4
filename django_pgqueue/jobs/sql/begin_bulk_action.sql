-- Have something done to many jobs in the background. Called by bulk_actions.begin() for staff, in the caller's
-- transaction. Returns the id of the bulk action.
INSERT INTO pgqueue_bulk_actions (verb, source, by, filter, said, rate, expected)
VALUES (
    %(verb)s::text, %(source)s::text, %(by)s::text, %(filter)s::jsonb, %(said)s::jsonb, %(rate)s::double precision,
    %(expected)s::bigint
)
RETURNING id;
