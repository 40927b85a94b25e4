"""Workflows: chains, groups, batches and graphs of jobs. The functions that declare one are in the package itself."""

from django_pgqueue.workflows.graph import NewStage, NewWorkflow
from django_pgqueue.workflows.handle import CurrentWorkflow, aget, get
from django_pgqueue.workflows.records import StageState, WorkflowState

__all__ = [
    "CurrentWorkflow",
    "NewStage",
    "NewWorkflow",
    "StageState",
    "WorkflowState",
    "aget",
    "get",
]
