"""The types that others see: ``python -m tests.typechecks``, which ``make types`` runs.

``consumer/`` is a small project that says what it takes each type for, and marks what a type checker has to refuse. It
is checked by mypy and by pyright in an environment where there is only the built wheel.
"""
