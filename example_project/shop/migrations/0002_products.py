from django.db import migrations

PRODUCTS = [
    ("Desk lamp", "64.00", "8410"),
    ("Reading lamp", "89.00", "8410"),
    ("Night light", "18.50", "8420"),
    ("Storm lantern", "42.00", ""),  # came in today, and bookkeeping does not know it yet
]


def stock(apps, schema_editor):
    product = apps.get_model("shop", "Product")
    product.objects.bulk_create(product(name=name, price=price, account=account) for name, price, account in PRODUCTS)


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(stock, migrations.RunPython.noop)]
