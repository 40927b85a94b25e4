-- The number with which new ids of jobs begin, which the identity column was given by the migrations. Called by
-- catalogue.id_number(). No row where the table is not there. Locks nothing.
SELECT seqmin >> 48 FROM pg_sequence
WHERE seqrelid = to_regclass(pg_get_serial_sequence(to_regclass('pgqueue_jobs')::text, 'id'));
