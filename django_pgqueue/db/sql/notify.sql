-- Wake idle workers, or waiters. Called by notify.send_notification(), after the commit of their reason.
-- Locks no row; NOTIFY holds a lock of the whole cluster at commit, which is short because nothing here goes to disk.
SELECT pg_notify(notification.channel, notification.payload)
FROM unnest(%(channels)s::text[], %(payloads)s::text[]) AS notification (channel, payload);
