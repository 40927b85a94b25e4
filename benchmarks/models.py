from django.db import models


class Visit(models.Model):
    """What handlers insert when they are measured with the ORM."""

    path = models.TextField()
    seen_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.path
