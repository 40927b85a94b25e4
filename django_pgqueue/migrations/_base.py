from collections.abc import Iterable
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration, RunSQL
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_pgqueue.conf import NUMBER_SHIFT, conf
from django_pgqueue.db.queries import numbering, statement


class QueueMigration(Migration):
    """A migration of the queue's PostgreSQL database; on any other it is recorded, and changes nothing.

    So a project whose other aliases are SQLite, or whose test settings are, migrates without an error.
    """

    def apply(
        self,
        project_state: ProjectState,
        schema_editor: BaseDatabaseSchemaEditor,
        collect_sql: bool = False,  # noqa: FBT001, FBT002 - the base class's signature
    ) -> ProjectState:
        if self._is_here(schema_editor):
            return super().apply(project_state, schema_editor, collect_sql)
        return self.mutate_state(project_state, preserve=False)

    def unapply(
        self,
        project_state: ProjectState,
        schema_editor: BaseDatabaseSchemaEditor,
        collect_sql: bool = False,  # noqa: FBT001, FBT002 - the base class's signature
    ) -> ProjectState:
        if self._is_here(schema_editor):
            return super().unapply(project_state, schema_editor, collect_sql)
        return project_state

    def _is_here(self, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        connection = schema_editor.connection
        return connection.vendor == "postgresql" and connection.alias in self._aliases()

    def _aliases(self) -> Iterable[str]:
        return conf.databases


class OutboxMigration(QueueMigration):
    """A migration of the databases of the queue and of those with an outbox."""

    def _aliases(self) -> Iterable[str]:
        return {*conf.databases, *conf.outboxes}


class NumberIds(Operation):
    """Let the ids of a model's rows begin with the number of their database; of the number 0 they are as they were."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, model: str, shift: int = NUMBER_SHIFT) -> None:
        self.model = model
        self.shift = shift

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - the base class's signature
        to_state: ProjectState,
    ) -> None:
        number = conf.number_of(schema_editor.connection.alias)
        if number:
            table = to_state.apps.get_model(app_label, self.model)._meta.db_table  # noqa: SLF001
            schema_editor.execute(numbering(table, number, self.shift))

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        pass

    def describe(self) -> str:
        return f"Let the ids of {self.model} begin with the number of the database"


class RunFile(RunSQL):
    """Run a file of the folder ``sql``; ``sqlmigrate`` and ``migrate --plan`` print its name.

    Once a release has the file it stays as it is: a later migration that replaces a function has a file of its own.
    """

    def __init__(self, name: str, *, reverse_sql: str = RunSQL.noop) -> None:
        super().__init__(statement(name), reverse_sql)
        self.name = name

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__qualname__, [self.name], {"reverse_sql": self.reverse_sql}

    def describe(self) -> str:
        return f"Run {self.name}.sql"
