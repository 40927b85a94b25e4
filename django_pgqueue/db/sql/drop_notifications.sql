-- Let the server drop the notifications that no session has to read any more. Called by notify.send_notification(),
-- when their queue is full: once it is, it stays so, because only a successful NOTIFY drops any, or a query of its
-- usage. Locks no row, reads no table. Source: asyncQueueAdvanceTail() in
-- https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/commands/async.c
SELECT pg_notification_queue_usage();
