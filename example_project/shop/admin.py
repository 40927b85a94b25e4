from django.contrib import admin

from shop.models import Export, Order, Photo, Product


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["name", "price", "account", "sold"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["pk", "name", "product", "quantity", "pickup_point", "receipt_sent_at", "courier_told_at"]
    list_filter = ["pickup_point", ("courier_told_at", admin.EmptyFieldListFilter)]
    list_select_related = ["product"]
    readonly_fields = ["reference", "placed_at", "receipt_sent_at", "courier_told_at", "courier_job"]


@admin.register(Photo)
class PhotoAdmin(admin.ModelAdmin):
    list_display = ["pk", "product", "image", "thumbnail", "uploaded_at"]
    list_select_related = ["product"]
    readonly_fields = ["thumbnail", "uploaded_at", "job"]

    def has_add_permission(self, request):  # noqa: ARG002 - Django's signature
        return False  # photos come in through the shop's own page, which enqueues their thumbnails


@admin.register(Export)
class ExportAdmin(admin.ModelAdmin):
    list_display = ["pk", "email", "asked_at", "mailed_at", "workflow"]
    readonly_fields = ["email", "asked_at", "mailed_at", "workflow"]

    def has_add_permission(self, request):  # noqa: ARG002 - Django's signature
        return False  # the shop's own page begins the workflow too
