from django.apps import AppConfig


class ConformanceConfig(AppConfig):
    name = "tests.conformance"
    label = "conformance"

    def ready(self) -> None:
        from tests.conformance.trace import connect

        connect()
