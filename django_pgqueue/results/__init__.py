"""Results of jobs: handles, lookup of one job in any table, waiting for its end."""
