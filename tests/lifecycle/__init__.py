"""The lifecycle of jobs, told twice: in a model in memory, and by those who work on the same database."""
