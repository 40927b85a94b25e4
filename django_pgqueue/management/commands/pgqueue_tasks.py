from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import override

from django_pgqueue import registry
from django_pgqueue.cli.arguments import add_json, add_queue
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.insights.formatting import json_text
from django_pgqueue.insights.task_info import as_json, described

HELP = """
List the tasks that this code knows, which are those that its workers can run: their options, the schedules that the
code declares for them, and their former names. Asks nothing of the database.
"""


class Command(QueueCommand):
    help = HELP

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="default: all; a former name will do")
        add_queue(parser, "whose jobs go to these queues, unless a call names another")
        add_json(parser)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        names = dict.fromkeys(registry.get(name).name for name in options["names"] or registry.known())
        tasks = [registry.get(name) for name in names]
        found = [task for task in tasks if not options["queue"] or task.options.queue in options["queue"]]
        if options["json"]:
            self.stdout.write(json_text([as_json(task) for task in found]))
        elif found:
            self.stdout.write("\n".join("\n".join(described(task)) for task in found))
        else:
            self.stdout.write(f"There is no such task. {registry.WHERE_TASKS_ARE}")
