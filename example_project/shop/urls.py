from django.urls import path

from shop import views

urlpatterns = [
    path("", views.home, name="home"),
    path("orders/<uuid:reference>/", views.order, name="order"),
    path("photos/", views.photos, name="photos"),
    path("exports/", views.exports, name="exports"),
]
