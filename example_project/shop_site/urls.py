from django.conf import settings
from django.conf.urls.static import static
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", include("shop.urls")),
    path("demo/", include("demo.urls")),
    path("admin/", admin.site.urls),
    path("favicon.ico", RedirectView.as_view(url=f"{settings.STATIC_URL}shop/lamp.svg")),
    *static(settings.MEDIA_URL, document_root=settings.MEDIA_ROOT),
]
