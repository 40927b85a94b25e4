from django.urls import path

from demo import courier, mailbox

app_name = "demo"
urlpatterns = [
    path("mails/", mailbox.page, name="mails"),
    path("courier/", courier.page, name="courier"),
    path("courier/parcels/", courier.parcels, name="parcels"),
    path("courier/<slug:slug>/switch/", courier.switch, name="switch"),
]
