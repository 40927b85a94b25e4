from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext_lazy as _

from django_pgqueue.base.states import LONGEST_PERIOD_SECONDS
from django_pgqueue.lifecycle.gates import MOST, default_burst
from django_pgqueue.models import Queue

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
