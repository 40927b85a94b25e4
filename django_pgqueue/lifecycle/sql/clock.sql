-- What time it is, and how many seconds of its minute are over. Called by staff.glance.look. Reads no table.
SELECT statement_timestamp(), extract(second FROM statement_timestamp())::double precision;
