import os

from django.apps import AppConfig


class TestsAppConfig(AppConfig):
    name = "tests.app"

    def ready(self) -> None:
        if "CRASH_POINTS" in os.environ:
            from tests.support.crash_points import install

            install(os.environ["CRASH_POINTS"])
        if "TELL_OF_DEATHS" in os.environ:
            from tests.support import deaths

            deaths.install()
