"""Answers for people, read only: counts, rates, and why a job is where it is."""
