from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.db import transaction
from django.db.models import Prefetch
from django.shortcuts import get_object_or_404, redirect, render

from shop.forms import ExportForm, OrderForm, PhotosForm
from shop.jobs import describe, steps_of
from shop.models import Export, Order, Photo, Product
from shop.tasks import begin_export, count_sale, make_thumbnail, send_receipt, tell_courier


def home(request):
    form = OrderForm(request.POST or None, initial={"product": request.GET.get("product")})
    if request.method == "POST" and form.is_valid():
        return redirect(place_order(form))
    pictures = Prefetch("photos", Photo.objects.exclude(thumbnail=""), to_attr="pictures")
    products = Product.objects.prefetch_related(pictures).order_by("pk")
    return render(request, "shop/home.html", {"form": form, "products": products})


def place_order(form: OrderForm) -> Order:
    """Save the order and enqueue its work in one transaction.

    The jobs are rows like the order itself: all of it is committed or nothing. No order without a receipt because the
    server died in between, no receipt for an order that was rolled back, and no worker looks for an order that is not
    there yet.
    """
    order = form.save(commit=False)
    order.price = order.product.price
    with transaction.atomic():
        order.save()
        send_receipt.enqueue(order.pk)
        count_sale.enqueue(order.pk)
        order.courier_job = tell_courier.enqueue(order.pk).id
        order.save(update_fields=["courier_job"])
    return order


def order(request, reference):
    order = get_object_or_404(Order.objects.select_related("product"), reference=reference)
    problem = describe([order.courier_job]).get(order.courier_job, "")
    is_settled = order.receipt_sent_at and (order.courier_told_at or problem.startswith("dead"))
    return render(request, "shop/order.html", {"order": order, "problem": problem, "refresh": not is_settled})


@staff_member_required
def photos(request):
    form = PhotosForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        added = add_photos(form.cleaned_data["product"], form.cleaned_data["images"])
        messages.success(request, f"{len(added)} photos are saved. Their thumbnails follow.")
        return redirect("photos")
    latest = list(Photo.objects.select_related("product")[:24])
    problems = describe(photo.job for photo in latest)
    for photo in latest:
        photo.problem = problems.get(photo.job, "")
    is_settled = all(photo.thumbnail or photo.problem.startswith("dead") for photo in latest)
    return render(request, "shop/photos.html", {"form": form, "photos": latest, "refresh": not is_settled})


def add_photos(product: Product, images) -> list[Photo]:
    """Save the photos and enqueue a thumbnail for each: one transaction, and one statement for all the jobs."""
    with transaction.atomic():
        photos = Photo.objects.bulk_create(Photo(product=product, image=image) for image in images)
        handles = make_thumbnail.enqueue_many([(photo.pk,) for photo in photos])
        for photo, handle in zip(photos, handles, strict=True):
            photo.job = handle.id
        Photo.objects.bulk_update(photos, ["job"])
    return photos


@staff_member_required
def exports(request):
    form = ExportForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        begin_export(form.save(commit=False))
        return redirect("exports")
    latest = list(Export.objects.all()[:10])
    for export in latest:
        export.steps = steps_of(export.workflow)
    is_settled = all(step.is_settled for export in latest for step in export.steps)
    return render(request, "shop/exports.html", {"form": form, "exports": latest, "refresh": not is_settled})
