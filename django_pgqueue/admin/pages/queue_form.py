from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.parts.formatting import capitalize_labels
from django_pgqueue.flow.queue_limits import MOST, default_burst
from django_pgqueue.models import Queue
from django_pgqueue.states import LONGEST_PERIOD_SECONDS

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
        help_text=_("Maximum jobs running at once, across all workers. Leave empty for no limit."),
    )
    rate_limit = forms.IntegerField(
        label=_("rate"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=_("Maximum jobs started in each period. Leave empty for no limit."),
    )
    rate_period_seconds = forms.FloatField(
        label=_("period"),
        required=False,
        min_value=0.001,
        max_value=LONGEST_PERIOD_SECONDS,
        help_text=_("Seconds per rate period. Default: 1."),
    )
    rate_burst = forms.IntegerField(
        label=_("burst"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=_(
            "Maximum jobs of the rate that start at once. Default: what the rate gives in a fifth of a second."
        ),
    )

    class Meta:
        model = Queue
        fields = ["max_running", "rate_limit", "rate_period_seconds", "rate_burst"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        capitalize_labels(self)

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
