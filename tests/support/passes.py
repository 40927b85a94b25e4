"""Single services out of the passes of a thread."""

from django_pgqueue.services import Services


def run_service(services: Services, name: str) -> float:
    """Do what a pass does with one service: run it if it is due. Return the seconds until it wants the next pass."""
    [service] = [service for service in services._services if service.name == name]
    return services._guarded(service)
