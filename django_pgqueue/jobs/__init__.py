"""What happens to a job: insert, claim, run, acknowledge, and what people do to it. One file for each step."""
