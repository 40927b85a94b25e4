from django.urls import path

from django_pgqueue.contrib.prometheus import view

urlpatterns = [path("", view, name="pgqueue-metrics")]
