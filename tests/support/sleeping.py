"""Sessions that wait for notifications, as callers see them who ask whom to wake."""

from django_pgqueue.db.queries import statement


def fall_asleep(connection, *queues: str) -> bool:
    """Say by this connection of psycopg that it waits for these queues; none: for any."""
    [(is_told,)] = connection.execute(statement("sleep"), {"queues": list(queues) or [""]}).fetchall()
    return is_told


def wake(connection, queue: str = "default") -> None:
    """Do by this connection of psycopg what a caller does after the commit of a job."""
    connection.execute(statement("wake"), {"queue": queue, "payload": queue})
