from django.db import migrations

PRODUCTS = {"Desk lamp": "64.00", "Reading lamp": "89.00", "Night light": "18.50", "Storm lantern": "42.00"}


def stock(apps, schema_editor):
    product = apps.get_model("shop", "Product")
    product.objects.bulk_create(product(name=name, price=price) for name, price in PRODUCTS.items())


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(stock, migrations.RunPython.noop)]
