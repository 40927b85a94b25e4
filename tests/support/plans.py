"""Plans of statements, as EXPLAIN tells them, and rows enough that they mean something."""

from tests.support.waiting import until_gone

FILL = """
INSERT INTO pgqueue_jobs (task, status, run_at, lease_token, worker_id, lease_until)
SELECT
    'x', kind, now() + CASE kind WHEN 'scheduled' THEN interval '1 day' ELSE interval '-1 min' END,
    CASE kind WHEN 'running' THEN 7 ELSE 0 END, CASE kind WHEN 'running' THEN 1 + mod(number, 50) ELSE 0 END,
    now() + interval '1 day'
FROM generate_series(1, %(number)s) AS number, unnest(%(kinds)s::text[]) AS kind
RETURNING 1
"""


def fill(queue, number, *kinds):
    queue.rows(FILL, {"number": number, "kinds": list(kinds)})


def explain(queue, text, parameters) -> list[dict]:
    """Run EXPLAIN ANALYZE, roll its effects back, return all nodes of the plan.

    Those that write have the bytes of the WAL below ``WAL Bytes``, and the number of whole pages there, ``WAL FPI``.
    """
    connection = queue.autocommit()
    session = connection.info.backend_pid
    try:
        with queue.transaction():  # with the planner settings that workers use
            [(plan,)] = queue.rows(f"EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) {text}", parameters)
            raise InterruptedError
    except InterruptedError:
        assert connection.closed, "which rolls back"
    until_gone(queue, session)
    return nodes_of(plan)


def nodes_of(plan) -> list[dict]:
    nodes = []

    def walk(node):
        nodes.append(node)
        for child in node.get("Plans", ()):
            walk(child)

    walk(plan[0]["Plan"])
    return nodes
