import contextlib
import secrets
import signal
import time

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.models.functions import Now
from shop.models import Product

from demo.customers import CLOSED, NEW, repair, visit
from demo.figures import Scene
from demo.mailbox import mail_server
from demo.models import PickupPoint
from demo.processes import free_port, managed, wait_for, wait_for_an_end
from demo.report import all_right, table
from demo.stage import set_stage
from django_pgqueue.models import Worker

STAFF = "demo"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Command(BaseCommand):
    help = "Run the shop with its worker, a mail server and the first customers."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--once", action="store_true", help="stop when the first work is done; check every figure")
        parser.add_argument("--wait", type=float, default=60.0, help="seconds for the first work; default: 60")
        parser.add_argument("--port", type=int, default=8000, help="or the next free one; default: 8000")

    def handle(self, **options):
        for number in SIGNALS:
            signal.signal(number, signal.default_int_handler)  # all end it as Ctrl-C does: everything stops in order
        self.begun = time.monotonic()
        with contextlib.ExitStack() as running:
            try:
                figures = self.run(running, **options)
            except KeyboardInterrupt:
                figures = []
                self.write("")
            finally:
                for number in SIGNALS:
                    signal.signal(number, signal.SIG_IGN)  # what follows is short, and has to be complete
            self.say("stopping")
        if options["once"]:
            self.conclude(figures)

    def run(self, running, *, once, wait, port, **_):
        """Start everything, let the customers in, watch; return the figures."""
        self.say("preparing the database")
        password = prepare()
        site, children = self.start(running, once=once, port=0 if once else port)
        self.welcome(site, password)
        scene = Scene()
        asked = visit(site, username=STAFF, password=password, say=self.say)
        self.watch(scene, wait)
        figures = scene.figures(asked)
        if once:
            figures += self.figures_after_repair(scene, asked, wait, site=site, password=password)
        else:
            self.write(f"\n{table(figures)}\n{HINT.format(site=site)}")
            set_stage()
            customers = managed(
                "demo_customers",
                f"--site={site}",
                log=settings.VAR / "logs" / "customers.log",
                environment={"STAFF_USERNAME": STAFF, "STAFF_PASSWORD": password},
            )
            wait_for_an_end([*children, running.enter_context(customers)])
            raise CommandError("The web server, the worker or the customers' program has ended by itself.")
        return figures

    def figures_after_repair(self, scene, asked, wait, *, site, password):
        """Repair the export in the admin; return the figures of it, which goes on by itself."""
        if dead := scene.page_without_account():
            repair(site, dead, username=STAFF, password=password)
            self.say("the account entered, and the dead page retried")
            self.watch(scene, wait)
        return scene.figures_of_export(asked)

    def start(self, running, *, once, port):
        """Start mail server, web server and worker; return the shop's address and the processes."""
        (settings.VAR / "logs").mkdir(parents=True, exist_ok=True)
        web_port, mail_port = free_port(port), free_port(0)
        site = f"http://127.0.0.1:{web_port}"
        environment = {"EMAIL_PORT": str(mail_port), "COURIER_URL": f"{site}/demo/courier/parcels/"}
        mail = mail_server(mail_port)
        mail.start()
        running.callback(mail.stop)
        web = running.enter_context(
            managed(
                "runserver",
                "--noreload",
                f"127.0.0.1:{web_port}",
                log=settings.VAR / "logs" / "web.log",
                environment=environment,
            )
        )
        worker = running.enter_context(
            managed(
                "pgqueue_worker",
                "--no-reload",
                "--name=demo",
                "--concurrency=8",
                "--shutdown-timeout=5",
                f"--verbosity={1 if once else 2}",
                log=settings.VAR / "logs" / "worker.log" if once else None,  # to be watched
                environment=environment,
            )
        )
        wait_for(site, web)
        return site, [web, worker]

    def watch(self, scene, seconds):
        """Say how the work goes on until it is done, for at most ``seconds``."""
        deadline, before = time.monotonic() + seconds, ""
        while True:
            if (now := scene.progress()) != before:
                self.say(now)
                before = now
            if not scene.is_busy() or time.monotonic() > deadline:
                return
            time.sleep(0.2)

    def welcome(self, site, password):
        self.write(
            f"\n  shop     {site}/\n  mails    {site}/demo/mails/\n  courier  {site}/demo/courier/\n"
            f"  admin    {site}/admin/\n  staff    {STAFF} / {password}\n  logs     {settings.VAR / 'logs'}\n\n"
        )

    def conclude(self, figures):
        if not figures:
            raise CommandError("Stopped before there was anything to check.")
        self.write(f"\n{table(figures)}\n")
        if not all_right(figures):
            raise CommandError(f"Not every figure is right. See {settings.VAR / 'logs'}.")
        self.write("Every figure is right.")

    def say(self, text):
        self.write(f"{time.monotonic() - self.begun:6.1f} s  {text}")

    def write(self, text):
        self.stdout.write(text)
        self.stdout.flush()  # it is to be watched, through a pipe too


def prepare() -> str:
    """Bring the database up to date, close one pick-up point, and return a new password for staff."""
    tables, users = connection.introspection.table_names(), get_user_model().objects
    is_ours = "demo_pickuppoint" in tables and PickupPoint.objects.exists()
    if "auth_user" in tables and users.exists() and not is_ours:
        raise CommandError(
            "This database has users, and was not made by the demo, which would give itself a superuser in it. Name "
            "another one in DATABASE_URL, or none."
        )
    call_command("migrate", verbosity=0)
    if worker := Worker.objects.filter(lease_until__gt=Now()).first():
        raise CommandError(
            f"A worker runs on this database already ({worker}, started at {worker.started_at:%H:%M:%S}). "
            "Stop it first; if it was killed, wait half a minute."
        )
    for slug in ("harbour", CLOSED):
        PickupPoint.objects.update_or_create(slug=slug, defaults={"is_open": slug != CLOSED})
    Product.objects.filter(name=NEW).update(account="")
    password = secrets.token_urlsafe(8)
    staff, _ = get_user_model().objects.get_or_create(username=STAFF)
    staff.is_staff = staff.is_superuser = True
    staff.set_password(password)
    staff.save()
    return password


HINT = """
Three jobs are dead, as they should be: a photo is torn, the pick-up point Hill is closed, and a product has no account.
An export of the orders waits for the last:  {site}/exports/  To repair it:
  1. enter an account, such as 8420:   {site}/admin/shop/product/
  2. retry the dead members of it:     {site}/admin/pgqueue/workflow/
The export then goes on by itself. For the second job, open Hill at {site}/demo/courier/ and retry it too.
Customers go on ordering, schedules fire, one queue is paused and one is limited: see what the admin says of it.
  overview                            {site}/admin/pgqueue/overview/
Place an order, upload photos, look around. Ctrl-C stops everything.
"""
