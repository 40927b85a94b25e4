from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from django_pgqueue.admin.actions import ActionsAdmin
from django_pgqueue.admin.base import ReadOnlyAdmin
from django_pgqueue.admin.keyset import is_integer
from django_pgqueue.admin.workflow_actions import STAGE_ACTIONS
from django_pgqueue.models import Stage
from django_pgqueue.workflows.records import workflow_id_of


@admin.register(Stage)
class StageAdmin(ReadOnlyAdmin, ActionsAdmin):
    """Actions on the stages of workflows. All else about them is on the page of theirs, where other addresses lead."""

    actions = STAGE_ACTIONS
    named_by = ("name",)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("pgqueue.view_workflow")

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        """Have no line in the index."""
        return {}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return HttpResponseRedirect(self._page_of(request, None))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        text = unquote(object_id or "")
        return HttpResponseRedirect(self._page_of(request, int(text) if is_integer(text) else None))

    def _back(self, request: HttpRequest, ids: Any) -> str:
        return self._page_of(request, next(iter(ids), None))

    def _page_of(self, request: HttpRequest, stage_id: int | None) -> str:
        links = self.links(request)
        page = "" if stage_id is None else links.to_row("workflow", workflow_id_of(stage_id))
        return page or links.to_list("workflow") or "../../"
