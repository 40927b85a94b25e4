-- Take back what sleep.sql has said. Called by the consumer when it is about to claim. Releases the session's locks.
SELECT pg_advisory_unlock_all();
