-- Wake idle workers, or waiters. Called by notify.send_notification(), after the commit of their reason.
-- Locks no row; NOTIFY holds a lock of the whole cluster at commit, which is short because nothing here goes to disk.
SELECT pg_notify(%(channel)s::text, payload.text)
FROM unnest(%(payloads)s::text[]) AS payload (text);
