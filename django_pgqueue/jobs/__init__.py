"""Transitions of a job: enqueue, claim, run, acknowledge, and the actions of staff. One file for each step."""
