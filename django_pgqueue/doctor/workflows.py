"""Look whether workflows go on."""

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View, named


def problems(view: View) -> Iterator[Finding]:
    found: dict[str, dict[int, str]] = {}
    for kind, workflow_id, name in view.database.rows(statement("workflow_problems"), {}):
        found.setdefault(kind, {})[workflow_id] = f"{name} #{workflow_id}"
    if stuck := found.get("stuck"):
        yield Finding(
            name="workflows-stuck",
            level=Level.WARNING,
            what=ngettext(
                "%(number)s workflow waits for dead members, or for workflows of members that failed: %(names)s.",
                "%(number)s workflows wait for dead members, or for workflows of members that failed: %(names)s.",
                len(stuck),
            )
            % _values(stuck),
            remedy=_(
                "Fix the cause and retry the dead members: the workflows go on by themselves. Or skip the stages."
            ),
            facts={"workflows": list(stuck)},
        )
    if unsealed := found.get("unsealed"):
        yield Finding(
            name="stages-unsealed",
            level=Level.WARNING,
            what=ngettext(
                "%(number)s workflow has a stage without members that was not sealed for an hour: %(names)s.",
                "%(number)s workflows have stages without members that were not sealed for an hour: %(names)s.",
                len(unsealed),
            )
            % _values(unsealed),
            remedy=_("Seal the stages, or kill the workflows: manage.py pgqueue_workflows seal."),
            facts={"workflows": list(unsealed)},
        )
    if overdue := found.get("overdue"):
        yield Finding(
            name="workflows-overdue",
            level=Level.ERROR,
            what=ngettext(
                "%(number)s workflow is open after its deadline: %(names)s.",
                "%(number)s workflows are open after their deadlines: %(names)s.",
                len(overdue),
            )
            % _values(overdue),
            remedy=_("Any worker ends workflows at their deadline. Start one, or look into the log of those that run."),
            facts={"workflows": list(overdue)},
        )


def _values(workflows: dict[int, str]) -> dict[str, object]:
    return {"number": len(workflows), "names": named(list(workflows.values()))}
