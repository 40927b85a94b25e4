"""The courier's endpoint and its page. The endpoint fails now and then, as partners do."""

import json

from django.db.models import F
from django.db.models.functions import Now
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from demo.models import Parcel, PickupPoint


@csrf_exempt  # called by programs, not by browsers
@require_POST
def parcels(request):
    """Take a parcel: 201. Answer 503 while its pick-up point is closed, and to the first try of every second order."""
    notice = json.loads(request.body)
    parcel = heard_of(notice)
    if not parcel.point.is_open:
        return HttpResponse(f"The pick-up point {parcel.point} is closed.", status=503)
    if parcel.meets_a_busy_courier and parcel.tries == 1:
        return HttpResponse("Too busy just now, please try again.", status=503)
    Parcel.objects.filter(pk=parcel.pk, accepted_at=None).update(accepted_at=Now())
    return HttpResponse("Taken.", status=201)


def heard_of(notice) -> Parcel:
    """Return the parcel of a notice, with this try counted."""
    about = {"point_id": notice["pickup_point"], "content": notice["content"]}
    parcel, _ = Parcel.objects.get_or_create(order=notice["order"], defaults=about)
    Parcel.objects.filter(pk=parcel.pk).update(tries=F("tries") + 1)
    return Parcel.objects.select_related("point").get(pk=parcel.pk)


def page(request):
    points = PickupPoint.objects.order_by("slug")
    return render(
        request, "demo/courier.html", {"points": points, "parcels": Parcel.objects.select_related("point")[:30]}
    )


@require_POST
def switch(request, slug):
    """Open a closed pick-up point, or close an open one."""
    point = get_object_or_404(PickupPoint, slug=slug)
    point.is_open = not point.is_open
    point.save()
    return redirect("demo:courier")
