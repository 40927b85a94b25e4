from django.urls import path

from django_pgqueue.metrics import view

urlpatterns = [path("", view, name="pgqueue-metrics")]
