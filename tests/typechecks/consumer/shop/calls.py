"""Jobs, from their enqueueing to their results."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, assert_type

from django.contrib.auth.base_user import AbstractBaseUser

from django_pgqueue import (
    PREVIOUS,
    Call,
    CallOptions,
    JobHandle,
    WorkflowHandle,
    aenqueue_many,
    batch,
    chain,
    current_workflow,
    enqueue,
    enqueue_many,
    finish_job,
    group,
    jobs,
    queues,
    schedules,
    workers,
    workflow,
    workflows,
)
from django_pgqueue.exceptions import (
    JobDied,
    JobExpired,
    JobWasKilled,
    NoResult,
    PgQueueError,
    QueueFull,
    ShardUnavailable,
)
from django_pgqueue.jobs import JobState, Killed, RetryResult
from django_pgqueue.states import DeathReason, JobStatus, WorkflowStatus
from django_pgqueue.workflows import CurrentWorkflow, NewStage, StageState, WorkflowState
from shop.tasks import pack, tally, write


def buy(order_id: int) -> int:
    handle = pack.enqueue(order_id, gift=True)
    assert_type(handle, JobHandle[str])
    assert_type(handle.result(), str)
    assert_type(handle.result(timeout=10), str)
    assert_type(tally.enqueue(order_id).result(), dict[str, int])
    assert_type(enqueue(pack, order_id), JobHandle[str])
    assert_type(enqueue(tally, order_id), JobHandle[dict[str, int]])
    assert_type(enqueue("shop.tasks.pack", order_id), JobHandle[Any])
    assert_type(pack.enqueue_many([(1,), {"order_id": 2}]), Sequence[JobHandle[str]])
    assert_type(tally.enqueue_many([(1,)]), Sequence[JobHandle[dict[str, int]]])
    wrong: int = handle.result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    pack.enqueue_many([1, 2])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]

    try:
        pack.enqueue(order_id)
    except QueueFull as full:
        assert_type((full.queue, full.max_backlog, full.queued), tuple[str, int, int])
    except ShardUnavailable:
        assert_type(pack.using(shard_by="order_id").bind(order_id).find(), JobHandle[str] | None)

    pack.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pack.enqueue("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.enqueue(7, gifft=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    enqueue(pack, "seven")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    return handle.id + wrong


def bind(order_id: int) -> list[int]:
    call = pack.using(priority=-10).bind(order_id, gift=True)
    assert_type(call, Call[str])
    assert_type(tally.bind(order_id), Call[dict[str, int]])
    assert_type(call.enqueue(), JobHandle[str])
    assert_type(enqueue_many([call, call]), Sequence[JobHandle[str]])
    call.enqueue_on_commit(using="shop")

    pack.bind("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.bind(7, gifft=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tally.bind("seven")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    enqueue_many([(1,), (2,)])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    enqueue_many([pack])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return [handle.id for handle in enqueue_many([call, tally.bind(order_id)])]


async def abind(order_id: int) -> None:
    assert_type(await pack.bind(order_id).aenqueue(), JobHandle[str])
    assert_type(await aenqueue_many([pack.bind(order_id)]), Sequence[JobHandle[str]])
    assert_type(await tally.aenqueue_many([(order_id,)]), Sequence[JobHandle[dict[str, int]]])


async def abuy(order_id: int) -> dict[str, int]:
    handle = await tally.aenqueue(order_id)
    assert_type(handle, JobHandle[dict[str, int]])
    assert_type(await handle.astatus(), JobStatus)
    await write.aenqueue(None)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(await handle.astate(), JobState)
    return await handle.aresult(timeout=5)


def defer(options: CallOptions) -> JobHandle[str]:
    later = pack.using(delay=dt.timedelta(hours=1), priority=10, unique_key="order:7", tags=("import",))
    pack.using(head_start=dt.timedelta(minutes=5)).enqueue(7)
    later.enqueue("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(on_conflict="replcae")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(prioritty=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    return later.using(**options).enqueue(7)


def look(job_id: int) -> None:
    handle = jobs.get(job_id)
    try:
        result: dict[str, int] = handle.result()  # whatever JSON it is, the caller knows
        print(result, handle.result(timeout=dt.timedelta(seconds=1)))
    except (JobWasKilled, JobExpired) as death:
        assert_type(death.reason, str)
    except JobDied as failure:
        assert_type(failure.reason, str)
        assert_type(failure.error, dict[str, Any])
    except PgQueueError:
        pass
    assert_type(handle.status(), JobStatus)
    if handle.status() == JobStatus.DEAD:
        assert_type(handle.state().reason, DeathReason | None)
    assert_type(handle.kill(by="ann"), bool)
    assert_type(handle.retry(), bool)
    handle.wait(5)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert_type(handle.state().attempts, int)
    assert_type(handle.state().started_at, dt.datetime | None)
    assert_type(handle.state().last_attempted_at, dt.datetime | None)
    assert_type(handle.state().ended_at, dt.datetime | None)
    assert_type((handle.state().succeeded, handle.state().is_finished), tuple[bool, bool])


def gather(handles: list[JobHandle[str]]) -> None:
    assert_type(jobs.wait_all(handles, 5), list[str])
    assert_type(jobs.wait_all(handles, timeout=5, return_exceptions=True), list[str | NoResult])
    for job in jobs.as_completed(handles, timeout=dt.timedelta(minutes=1)):
        assert_type(job.result(), str)
        assert_type(job.handle, JobHandle[str])
    jobs.wait_all(handles)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def agather(handles: list[JobHandle[str]]) -> None:
    assert_type(await jobs.await_all(handles, 5), list[str])
    async for job in jobs.as_completed(handles, 5):
        assert_type(job.result(), str)


def see_to_it(ids: list[int], user: AbstractBaseUser) -> None:
    assert_type(jobs.move(ids, queue="slow", by="ann"), list[int])
    assert_type(jobs.retry(ids, by="ann"), RetryResult)
    assert_type(jobs.kill(ids, by="ann"), Killed)
    jobs.kill(ids)
    jobs.kill(ids, by=user)
    jobs.kill([jobs.get(7), 8])
    jobs.kill([jobs.get(unique_key="order:7")])
    assert_type(pack.bind(7).find(), JobHandle[str] | None)
    jobs.kill(["seven"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    jobs.kill(ids, by=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(queues.pause("mail", by="ann", resume_at=dt.timedelta(hours=1)), bool)
    queues.limit("mail", max_running=4, rate=None)
    queues.limit("mail", rate="60/m", burst=5, by=user)
    queues.limit("mail", max_running=4, burst=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    assert_type(schedules.run(["nightly"], by="ann"), dict[str, int])
    assert_type(workers.stop([7], by="ann"), list[int])
    with finish_job() as end:
        end.result = 7
    assert_type(workers.quiet([7], by="ann"), list[int])
    assert_type(workers.resume([7]), list[int])


def import_all(feeds: list[int]) -> WorkflowHandle:
    calls = [pack.bind(feed) for feed in feeds]
    assert_type(chain(pack.bind(1), pack.bind(PREVIOUS), calls).enqueue(), WorkflowHandle)
    assert_type(chain(calls, keep_calls=True).enqueue().rerun("pack", by="ann"), int)
    assert_type(group(calls, collect=True, name="packs", on_death="go_on").enqueue(), WorkflowHandle)
    batch(calls, then=tally.bind(1), died=pack.bind(2), deadline=dt.timedelta(hours=1)).enqueue()
    with workflow("import", unique_key="import", context={"feeds": feeds}) as flow:
        packs = flow.add_many(calls, collect=True)
        assert_type(packs, NewStage)
        flow.add(tally.bind(1), after=[packs, "other"], when="ended")
    handle = workflows.get(unique_key="import")
    assert_type(handle.state(), WorkflowState)
    assert_type(handle.state().stages, tuple[StageState, ...])
    assert_type(handle.status(), WorkflowStatus)
    assert_type(handle.add(pack.bind(1), stage="pack"), JobHandle[str])
    assert_type(handle.add_many(calls, stage="pack"), Sequence[JobHandle[str]])
    assert_type(handle.retry(by="ann"), int)
    assert_type(handle.kill(), bool)
    assert_type(current_workflow(), CurrentWorkflow)
    current_workflow().add(pack.bind(1))

    chain(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    group(calls, on_deth="stop")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    batch(calls, on_death="panic")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.add(pack.bind(1), when="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return flow.handle
