-- Let the server drop the notifications that nobody is to read any more. Called by notify.announce(), when their queue
-- is full: once it is, it stays so, because only a successful NOTIFY would drop any, or whoever asks for its usage.
-- Locks no row, reads no table. Source: asyncQueueAdvanceTail() in
-- https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/commands/async.c
SELECT pg_notification_queue_usage();
