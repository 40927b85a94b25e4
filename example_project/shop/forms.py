from django import forms
from django.core.validators import FileExtensionValidator

from shop.models import Export, Order, Photo, Product

LARGEST_PHOTO_BYTES = 10 * 1024 * 1024


class OrderForm(forms.ModelForm):
    class Meta:
        model = Order
        fields = ["product", "quantity", "name", "email", "pickup_point"]


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class PhotosField(forms.FileField):
    """Several files. Whether they are images is found out by the worker, not while a customer waits for the page."""

    widget = FilesInput(attrs={"accept": ",".join(f".{name}" for name in Photo.FORMATS)})

    def clean(self, data, initial=None):
        return [self.clean_one(file, initial) for file in data or [None]]

    def clean_one(self, file, initial):
        file = super().clean(file, initial)
        if file.size > LARGEST_PHOTO_BYTES:
            raise forms.ValidationError(f"{file.name} is larger than 10 MB.")
        return file


class PhotosForm(forms.Form):
    product = forms.ModelChoiceField(Product.objects.all())
    images = PhotosField(label="Photos", validators=[FileExtensionValidator(Photo.FORMATS)])


class ExportForm(forms.ModelForm):
    class Meta:
        model = Export
        fields = ["email"]
