from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import choose
from django_pgqueue.admin.base import ActingAdmin
from django_pgqueue.admin.formatting import label, moment_of
from django_pgqueue.admin.listing import CappedPaginator, JobList
from django_pgqueue.admin.queue_verbs import PAUSE, RESUME
from django_pgqueue.admin.verbs import Verb
from django_pgqueue.base.conf import conf
from django_pgqueue.base.states import LONGEST_PERIOD_SECONDS, LONGEST_QUEUE
from django_pgqueue.lifecycle.gates import MOST, UNCHANGED, default_burst, limit_queue
from django_pgqueue.models import Queue
from django_pgqueue.staff.queues import PAUSED, limits_of, number, pause_of, states_of

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Queue]
else:
    ModelForm = forms.ModelForm  # generic for the type checker only

RATE = {"rate_limit", "rate_period_seconds", "rate_burst"}


class LimitsForm(ModelForm):
    """The limits of one queue; what ``limit_queue`` would refuse is refused here, at its field."""

    max_running = forms.IntegerField(
        label=_("at once"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=_("So many of its jobs run at once, over all workers. Empty: any number."),
    )
    rate_limit = forms.IntegerField(
        label=_("rate"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=_("So many of its jobs are started in each period. Empty: any number."),
    )
    rate_period_seconds = forms.FloatField(
        label=_("period"),
        required=False,
        min_value=0.001,
        max_value=LONGEST_PERIOD_SECONDS,
        help_text=_("Of the rate, in seconds. Empty: a second."),
    )
    rate_burst = forms.IntegerField(
        label=_("burst"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=_("So many of them may start at once. Empty: what the rate gives in a fifth of a second."),
    )

    class Meta:
        model = Queue
        fields = ["max_running", "rate_limit", "rate_period_seconds", "rate_burst"]

    def clean(self) -> dict[str, Any]:
        """Fill in what may be left empty beside a rate."""
        super().clean()
        cleaned = self.cleaned_data
        if self.errors:
            return cleaned
        if cleaned["rate_limit"]:
            cleaned["rate_period_seconds"] = cleaned["rate_period_seconds"] or 1.0
            cleaned["rate_burst"] = cleaned["rate_burst"] or default_burst(
                cleaned["rate_limit"], cleaned["rate_period_seconds"]
            )
            return cleaned
        for name in ("rate_period_seconds", "rate_burst"):
            if cleaned[name] is not None:
                self.add_error(name, _("This belongs to a rate, and there is none."))
        return cleaned


@admin.register(Queue)
class QueueAdmin(ActingAdmin):
    """Queues: how many jobs they have, who has paused them and why, how they are limited."""

    form = LimitsForm  # type: ignore[assignment]  # generic for the type checker only
    verbs = (PAUSE, RESUME)
    named_by = ()
    heavy: tuple[str, ...] = ()
    actions = ("pause", "resume")
    list_display = ("name", "state", "queued", "running", "waiting", "limits")
    search_fields = ("name",)
    ordering = ("name",)
    sortable_by = ()
    paginator = CappedPaginator
    list_per_page = 100
    list_max_show_all = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": ("name", "state", "queued", "running", "waiting", "created_time")}),
        (_("Limits"), {"fields": ("max_running", "rate_limit", "rate_period_seconds", "rate_burst")}),
    )
    readonly_fields = ("name", "state", "queued", "running", "waiting", "created_time")

    created_time = moment_of("created_at", _("first seen"))

    @admin.action(permissions=["pause"], description=_("Pause selected %(verbose_name_plural)s"))
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> HttpResponse:
        return choose(self, request, PAUSE, queryset)

    @admin.action(permissions=["pause"], description=_("Resume selected %(verbose_name_plural)s"))
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> HttpResponse:
        return choose(self, request, RESUME, queryset)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self.may(request, PAUSE)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Limits are changed by those who may pause."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.{PAUSE.permission}"))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        names = (f"{self.opts.app_label}.{right}_queue" for right in ("view", "change"))
        return any(map(request.user.has_perm, names))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def keys(self, texts: Iterable[str]) -> list[str]:
        names = list(dict.fromkeys(texts))
        if any(not 0 < len(name) <= LONGEST_QUEUE or "\0" in name for name in names):
            raise BadRequest("A queue's name has 1 to 128 characters.")
        return names

    def offers(self, verb: Verb, row: Any) -> bool:
        return verb is not RESUME or row.is_paused

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queues: QuerySet[Any] = super().get_queryset(request).annotate(is_paused=PAUSED)
        return queues

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def complete(self, queues: list[Any]) -> None:
        """Give the queues on one page of the list the numbers of their jobs."""
        for state in states_of(queues, conf.database):
            state.row.counts = state.counts  # type: ignore[attr-defined]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        """Set the limits as the verb does, which also tells the workers; tokens stay where the rate does."""
        said, has_rate = form.cleaned_data, RATE & set(form.changed_data)
        limit_queue(
            obj.pk,
            max_running=said["max_running"],
            rate=said["rate_limit"] if has_rate else UNCHANGED,
            period=said["rate_period_seconds"] or 1.0 if has_rate else 1.0,
            burst=said["rate_burst"] if has_rate else None,
            database=conf.database,
        )

    @admin.display(description=_("state"))
    def state(self, queue: Any) -> str:
        if not queue.is_paused:
            return label("running", gettext("open"))
        words = pause_of(queue)
        return format_html('{} <span class="pgqueue-quiet">{}</span>', label("paused", gettext("paused")), words)

    @admin.display(description=_("queued"))
    def queued(self, queue: Any) -> str:
        return number(self._counts(queue).queued)

    @admin.display(description=_("running"))
    def running(self, queue: Any) -> str:
        return number(self._counts(queue).running)

    @admin.display(description=_("waiting"))
    def waiting(self, queue: Any) -> str:
        return number(self._counts(queue).waiting)

    @admin.display(description=_("limits"))
    def limits(self, queue: Queue) -> str:
        return limits_of(queue) or "-"

    def _counts(self, queue: Any) -> Any:
        if not hasattr(queue, "counts"):
            self.complete([queue])
        return queue.counts
