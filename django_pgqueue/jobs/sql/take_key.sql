-- Take a key of once(). Called in the caller's transaction. Waits for another open transaction that has inserted the same
-- key, and for nothing else. Returns the key; no row if it was taken before.
INSERT INTO pgqueue_once_keys (key)
VALUES (%(key)s::text)
ON CONFLICT (key) DO NOTHING
RETURNING key;
