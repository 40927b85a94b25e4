"""Single services out of the passes of a thread."""

from django_pgqueue.services import Services


def run_service(services: Services, name: str) -> float:
    """Do the part of a service in a pass: run it if it is due; return the seconds until it asks for the next one."""
    [service] = [service for service in services._services if service.name == name]
    return services._run_if_due(service)
