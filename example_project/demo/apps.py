from django.apps import AppConfig


class DemoConfig(AppConfig):
    """The world around the shop, so that its mails, webhooks and customers are real. Leave it out of a copy."""

    name = "demo"
