-- What time it is, and how many seconds of its minute are over. Called by cli.stats. Reads no table.
SELECT statement_timestamp(), extract(second FROM statement_timestamp())::double precision;
