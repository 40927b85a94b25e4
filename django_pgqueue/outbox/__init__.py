"""Outbox: jobs committed with data of another database than the queue's, and handed over to the queue afterwards.

An app of its own, for projects whose data and whose queue are in different databases. A call is a row in the database
of the data until a worker's relay has made a job of it. The job has its id from the beginning.
"""
