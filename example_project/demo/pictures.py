"""Draws photos of lamps, in the formats that cameras and designers send; the last one is torn."""

import io
from collections.abc import Iterator

from PIL import Image, ImageDraw

SIZE = (1200, 900)
ORIENTATION = 0x0112  # the EXIF tag by which a camera says how it was held


def pictures() -> Iterator[tuple[str, str, bytes]]:
    """Yield product, file name and content."""
    desk = lamp((246, 196, 92), (38, 46, 66), shade=[(470, 470), (730, 470), (650, 300), (550, 300)])
    reading = lamp((255, 214, 150), (62, 38, 40), shade=[(380, 430), (820, 430), (680, 230), (520, 230)])
    night = lamp((255, 170, 120), (30, 34, 48), shade=[(500, 560), (700, 560), (700, 380), (500, 380)])
    storm = lamp((250, 226, 160), (24, 52, 54), shade=[(520, 560), (680, 560), (720, 300), (480, 300)])
    turned = Image.Exif()
    turned[ORIENTATION] = 6  # held upright: to be shown turned by a quarter
    png = encoded(reading, "PNG")
    yield "Desk lamp", "desk-lamp.jpg", encoded(desk.rotate(90, expand=True), "JPEG", quality=90, exif=turned)
    yield "Reading lamp", "reading-lamp.png", png
    yield "Night light", "night-light.webp", encoded(night, "WEBP", quality=85)
    yield "Storm lantern", "storm-lantern.gif", encoded(storm, "GIF")
    yield "Storm lantern", "torn.png", png[: len(png) // 2]


def is_whole(name: str) -> bool:
    """Whether a thumbnail is expected of this picture."""
    return not name.startswith("torn")


def lamp(light, wall, *, shade) -> Image.Image:
    glow = Image.radial_gradient("L").resize((1500, 1500)).crop((150, 300, 1350, 1200))
    picture = Image.composite(Image.new("RGB", SIZE, wall), Image.new("RGB", SIZE, light), glow)
    draw = ImageDraw.Draw(picture)
    table = tuple(part * 2 // 3 for part in wall)
    draw.rectangle((0, 740, *SIZE), fill=table)
    draw.rectangle((590, 400, 610, 740), fill=(52, 40, 30))
    draw.ellipse((490, 715, 710, 765), fill=(52, 40, 30))
    draw.polygon(shade, fill=light, outline=(52, 40, 30), width=6)
    return picture


def encoded(picture: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()
