"""Take a key once: ``once``."""

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import NoTransaction
from django_pgqueue.states import LONGEST_KEY
from django_pgqueue.validation import check_name


def once(key: str, *, database: str | None = None) -> bool:
    """Take a key in the caller's transaction; return whether this is the first time.

    The key is taken if that transaction commits, and free again if it rolls back. If another transaction that is still
    open has taken it, this waits for its end: so of two callers at the same time one gets True, unless it rolls back.

    Args:
        key: of 1 to 500 characters, shared by all code: begin it with its purpose, ``f"paid:{event_id}"``.
            Keys are forgotten after ``PGQUEUE["ONCE_DAYS"]``.
        database: alias of the queue's database. None: that of the running job, else ``PGQUEUE["DATABASE"]``.

    Raises:
        NoTransaction: the caller is in no transaction.
        InvalidOption: the key is empty, too long, or no text.
    """
    check_name("key", key, LONGEST_KEY)
    caller = CallerConnection(database)
    if not caller.in_transaction:
        raise NoTransaction
    return bool(caller.rows(statement("take_key"), {"key": key}))
