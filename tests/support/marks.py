"""Labels that jobs of tests have left behind."""

from tests.app.models import Mark


def labels() -> list[str]:
    return list(Mark.objects.order_by("pk").values_list("label", flat=True))
