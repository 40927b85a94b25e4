from collections.abc import Sequence
from typing import Self

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_pgqueue.conf import conf


class OnQueueDatabase(SeparateDatabaseAndState):
    """Run operations on the queue's PostgreSQL database; on any other, record them and change nothing.

    So a project whose other aliases are SQLite, or whose test settings are, migrates without an error.
    """

    @classmethod
    def both(cls, operations: Sequence[Operation]) -> Self:
        """Apply the same operations to the state and to the database."""
        return cls(database_operations=operations, state_operations=operations)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if self._is_here(schema_editor):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if self._is_here(schema_editor):
            super().database_backwards(app_label, schema_editor, from_state, to_state)

    @staticmethod
    def _is_here(schema_editor: BaseDatabaseSchemaEditor) -> bool:
        connection = schema_editor.connection
        return connection.vendor == "postgresql" and connection.alias == conf.database
