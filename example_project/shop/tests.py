"""Tests of the jobs that customers and staff set off: ``manage.py test shop``."""

import datetime as dt
import io
import zipfile
from unittest import mock
from urllib.error import HTTPError

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import TestCase, override_settings
from PIL import Image

from django_pgqueue import jobs, workflows
from django_pgqueue.models import DeadJob
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, run_jobs
from shop.models import Export, Order, Photo, Product
from shop.tasks import (
    CourierRefusedError,
    count_sale,
    export_every_week,
    mail_takings,
    make_thumbnail,
    send_receipt,
    tell_courier,
    write_page,
)

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
IN_MEMORY = override_settings(STORAGES={**settings.STORAGES, "default": MEMORY})


def refused(*_args, **_options):
    raise HTTPError("http://courier.example/", 503, "busy", {}, io.BytesIO(b"come back later"))


class OrderTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.lamp = Product.objects.create(name="Floor lamp", price=120)

    def setUp(self):
        self.courier = self.enterContext(mock.patch("shop.tasks.http.open"))

    def order(self, **changes):
        form = {"product": self.lamp.pk, "quantity": 2, "name": "Ada", "email": "ada@example.com"}
        self.client.post("/", {**form, "pickup_point": "hill", **changes})
        return Order.objects.last()

    def test_order_enqueues_its_work(self):
        order = self.order()
        assert_enqueued(send_receipt, args=(order.pk,), queue="mails", count=1)
        assert_enqueued(count_sale, args=(order.pk,), count=1)
        assert assert_enqueued(tell_courier, args=(order.pk,)).pk == order.courier_job

    def test_order_that_is_not_valid_enqueues_nothing(self):
        self.order(quantity=0)
        assert_not_enqueued()

    def test_customer_gets_a_receipt(self):
        order = self.order()
        run_jobs(queue="mails")
        self.assertEqual([message.to for message in mail.outbox], [["ada@example.com"]])
        order.refresh_from_db()
        self.assertIsNotNone(order.receipt_sent_at)

    def test_receipt_is_sent_once(self):
        order = self.order()
        send_receipt.enqueue(order.pk)
        run_jobs(task=send_receipt)
        self.assertEqual(len(mail.outbox), 1)

    def test_sale_is_counted(self):
        self.order()
        run_jobs(task=count_sale)
        self.lamp.refresh_from_db()
        self.assertEqual(self.lamp.sold, 2)

    def test_courier_who_refuses_once_is_asked_again(self):
        order = self.order()
        self.courier.side_effect = [HTTPError("", 503, "", {}, io.BytesIO()), mock.DEFAULT]
        report = run_jobs(task=tell_courier, until=dt.timedelta(minutes=1), errors="collect")
        self.assertEqual([run.outcome for run in report], ["retried", "succeeded"])
        order.refresh_from_db()
        self.assertIsNotNone(order.courier_told_at)

    def test_courier_who_goes_on_refusing_is_left_to_staff(self):
        order = self.order()
        self.courier.side_effect = refused
        report = run_jobs(task=tell_courier, until=dt.timedelta(minutes=1), errors="collect")
        self.assertEqual([run.outcome for run in report], ["retried", "retried", "died"])
        self.assertIsInstance(report.errors[-1], CourierRefusedError)
        self.assertEqual(DeadJob.objects.get().pk, order.courier_job)
        self.assertEqual(mail.outbox[-1].subject, f"The courier does not come for order {order.pk}")
        self.assertContains(self.client.get(order.get_absolute_url()), "dead (exhausted): 503: come back later")

    def test_order_says_that_its_work_waits(self):
        order = self.order()
        self.assertContains(self.client.get(order.get_absolute_url()), "limited")


class TakingsTest(TestCase):
    def test_takings_are_mailed_every_evening(self):
        report = run_jobs(task=mail_takings, until=dt.timedelta(days=7))
        self.assertEqual(len(mail.outbox), 7)
        self.assertEqual({run.at.minute for run in report}, {0})


@IN_MEMORY
class PhotoTest(TestCase):
    def upload(self, *contents):
        staff = get_user_model().objects.create_superuser("staff", "staff@example.com", "secret")
        self.client.force_login(staff)
        files = [SimpleUploadedFile(f"{number}.png", content) for number, content in enumerate(contents)]
        lamp = Product.objects.create(name="Floor lamp", price=120)
        self.client.post("/photos/", {"product": lamp.pk, "images": files})

    def picture(self):
        out = io.BytesIO()
        Image.new("RGB", (900, 600)).save(out, "PNG")
        return out.getvalue()

    def test_each_photo_gets_a_thumbnail(self):
        self.upload(self.picture(), self.picture())
        run_jobs()
        for photo in Photo.objects.all():
            with Image.open(photo.thumbnail.open()) as thumbnail:
                self.assertEqual(thumbnail.size, (480, 320))

    def test_photo_that_is_no_image_is_given_up(self):
        self.upload(self.picture()[:100])
        [run] = run_jobs()
        self.assertEqual((run.outcome, run.reason), ("died", "discarded"))

    def test_thumbnail_is_asked_for_once(self):
        self.upload(self.picture())
        make_thumbnail.enqueue(Photo.objects.get().pk)
        assert_enqueued(make_thumbnail, count=1)


@IN_MEMORY
class ExportTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.lamp = Product.objects.create(name="Floor lamp", price=120, account="8410")
        cls.lantern = Product.objects.create(name="Ship's lantern", price=60)
        for product in (cls.lamp, cls.lantern, cls.lamp):
            Order.objects.create(product=product, price=product.price, name="Ada", email="ada@example.com")
        cls.staff = get_user_model().objects.create_superuser("staff", "staff@example.com", "secret")

    def export(self):
        self.client.force_login(self.staff)
        self.client.post("/exports/", {"email": "books@example.com"})
        return Export.objects.get()

    def mailed(self):
        [message] = mail.outbox
        [(name, content, _)] = message.attachments
        self.assertEqual((message.to, name), (["books@example.com"], "orders.zip"))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name).decode().splitlines() for name in archive.namelist()}

    def test_orders_are_mailed_with_a_page_for_each_product(self):
        Product.objects.filter(pk=self.lantern.pk).update(account="8420")
        export = self.export()
        run_jobs()
        pages = self.mailed()
        self.assertEqual([*pages], [f"{self.lamp.pk}.csv", f"{self.lantern.pk}.csv"])
        self.assertEqual([len(page) for page in pages.values()], [3, 2])
        self.assertEqual(workflows.get(export.workflow).status(), "succeeded")

    def test_export_waits_for_a_page_that_is_dead_and_goes_on_when_that_is_retried(self):
        export = self.export()
        run_jobs(errors="collect")
        dead = DeadJob.objects.get()
        self.assertEqual((dead.task, dead.reason), (write_page.name, "discarded"))
        self.assertTrue(workflows.get(export.workflow).state().is_stuck)
        self.assertContains(self.client.get("/exports/"), "1 of 2, 1 dead")
        self.assertEqual(mail.outbox, [])
        Product.objects.filter(pk=self.lantern.pk).update(account="8420")
        jobs.retry([dead.pk])
        run_jobs()
        self.assertEqual(len(self.mailed()), 2)
        self.assertNotContains(self.client.get("/exports/"), "dead")

    def test_who_is_no_staff_cannot_export(self):
        self.client.post("/exports/", {"email": "books@example.com"})
        self.assertFalse(Export.objects.exists())

    def test_export_begins_every_monday(self):
        report = run_jobs(task=export_every_week, until=dt.timedelta(days=14))
        self.assertEqual([run.at.strftime("%A") for run in report], ["Monday", "Monday"])
        self.assertEqual(Export.objects.count(), 2)
