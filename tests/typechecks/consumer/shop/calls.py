"""Jobs, from their enqueueing to their results."""

import datetime as dt
from typing import Any, assert_type

from django_pgqueue import (
    JobHandle,
    TaskOptions,
    enqueue,
    enqueue_many,
    enqueue_on_commit,
    jobs,
    queues,
    schedules,
    workers,
)
from django_pgqueue.exceptions import JobFailed, PgQueueError
from django_pgqueue.jobs import JobState
from shop.tasks import pack, write


def buy(order_id: int) -> int:
    handle = pack.enqueue(order_id, gift=True)
    assert_type(handle, JobHandle)
    assert_type(enqueue(pack, order_id), JobHandle)
    assert_type(enqueue("shop.tasks.pack", order_id), JobHandle)
    assert_type(enqueue_many(pack, [(1,), {"order_id": 2}]), list[int])
    enqueue_on_commit(pack, (order_id,), database="shop")

    pack.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pack.enqueue("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.enqueue(7, gifft=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    enqueue(pack, "seven")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    return handle.id


async def abuy(order_id: int) -> Any:
    handle = await write.aenqueue(order_id)
    assert_type(handle, JobHandle)
    await write.aenqueue(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await handle.astate(), JobState)
    return await handle.await_(timeout=5)


def defer(options: TaskOptions) -> JobHandle:
    later = pack.using(run_at=dt.timedelta(hours=1), priority=10, unique_key="order:7", metadata={"by": "ann"})
    later.enqueue("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(prioritty=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    return later.using(**options).enqueue(7)


def look(job_id: int) -> None:
    handle = jobs.get(job_id)
    try:
        result: dict[str, int] = handle.result()  # whatever JSON it is, the caller knows
        print(result, handle.wait(timeout=dt.timedelta(seconds=1)))
    except JobFailed as failure:
        assert_type(failure.reason, str)
        assert_type(failure.error, dict[str, Any])
    except PgQueueError:
        pass
    assert_type(handle.state().attempts, int)
    assert_type(handle.state().ended_at, dt.datetime | None)


def see_to_it(ids: list[int]) -> None:
    assert_type(jobs.move(ids, queue="slow", by="ann"), list[int])
    assert_type(jobs.retry(ids, by="ann").ids, list[int])
    assert_type(jobs.kill(ids, by="ann").dead, list[int])
    jobs.kill(ids)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(queues.pause("mail", by="ann", resume_at=dt.timedelta(hours=1)), bool)
    queues.limit("mail", max_running=4, rate=None)
    assert_type(schedules.run(["nightly"], by="ann"), dict[str, int])
    assert_type(workers.stop([7], by="ann"), list[int])
