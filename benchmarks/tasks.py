from django_pgqueue import task


@task
def noop() -> None:
    pass


@task
async def anoop() -> None:
    pass
