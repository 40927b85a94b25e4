"""Blocks of code in the docs work as they are typed: each is parsed, prepared or run."""

import argparse
import ast
import configparser
import importlib
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandParser

import django_pgqueue
import django_pgqueue.bench.tasks  # registers tasks, as the command that has them does
from django_pgqueue.conf import DEFAULTS
from django_pgqueue.models import Job
from tests.support.pages import DOCS, PAGES, blocks, codes, each_page, name_of

OF_OTHERS = {"db_worker", "demo"}
"""Commands of other packages, and of the example project."""


# Python


@each_page
def test_python_on_the_page_compiles(page):
    for block in blocks(page, "python"):
        compile(block, name_of(page), "exec")


@each_page
def test_names_that_the_page_imports_from_the_package_exist(page):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "django_pgqueue":
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


@each_page
def test_page_imports_what_is_public_from_the_package_itself(page):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django_pgqueue."):
                assert not {alias.name for alias in node.names} & set(django_pgqueue.__all__), node.module


def named(node: ast.Assign) -> str:
    return ast.unparse(node.targets[0])


def keys_of_settings(block: str) -> Iterator[str]:
    """Yield the keys of ``PGQUEUE = {...}`` in a block, annotated or not."""
    for node in ast.walk(ast.parse(block)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        if ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]) == "PGQUEUE":
            yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))


@each_page
def test_settings_on_the_page_exist(page):
    named = {key for block in blocks(page, "python") for key in keys_of_settings(block)}
    named |= {key for code in codes(page) for key in re.findall(r"PGQUEUE\[[\"'](\w+)[\"']\]", code)}
    assert named <= set(DEFAULTS)


@pytest.mark.parametrize(
    ("debug", "typed", "is_on"),
    [(True, ["runserver"], True), (True, ["test", "shop"], False), (False, ["runserver"], False)],
)
def test_immediate_mode_of_the_page_is_for_development_and_not_for_tests(debug, typed, is_on, monkeypatch):
    monkeypatch.setattr("sys.argv", ["manage.py", *typed])
    [block] = blocks(DOCS / "how-to" / "local-development.md", "python")
    settings = {"DEBUG": debug}
    exec(block, settings)
    assert settings["PGQUEUE"] == {"IMMEDIATE": is_on}


# Commands


def parser_of(command: str) -> CommandParser:
    parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
    for action in parser._actions:
        if action.dest == "database":
            action.choices = None  # these are aliases of the tests' own settings
    return parser


def typed(text: str) -> Iterator[list[str]]:
    """Yield the command of each call of manage.py in a text, with what is typed behind it."""
    for call in re.findall(r"(?<![\w/])manage\.py +(\w.*)", text.replace("\\\n", " ")):
        words = shlex.shlex(call, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        yield [*itertools.takewhile(lambda word: not set(word) <= set(";|&<>()"), words)]


def started_in(value: Any) -> Iterator[list[str]]:
    """Yield what is behind manage.py in lists of words, as Kubernetes wants a command."""
    if isinstance(value, list) and "manage.py" in value:
        yield value[value.index("manage.py") + 1 :]
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from started_in(one)


@each_page
def test_commands_in_blocks_can_be_typed(page):
    calls = [call for block in blocks(page, "console", "ini", "yaml") for call in typed(block)]
    calls += [
        call for block in blocks(page, "yaml") for value in yaml.safe_load_all(block) for call in started_in(value)
    ]
    for command, *words in calls:
        if command not in OF_OTHERS and words[-1:] != ["[options]"]:
            parser_of(command).parse_args(words)  # raises CommandError, with the reason


@each_page
def test_commands_in_lines_have_the_options_that_are_named(page):
    for command, *words in [call for code in codes(page) for call in typed(code)]:
        if command not in OF_OTHERS:
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= options_of(parser_of(command)), f"{command} {words}"


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a command, with those of its actions."""
    parsers = [action.choices.values() for action in parser._actions if isinstance(action.choices, dict)]
    below = [options_of(below) for below in itertools.chain(*parsers)]
    return set().union(*(action.option_strings for action in parser._actions), *below)


# Files


@each_page
def test_json_on_the_page_is_json(page):
    for block in blocks(page, "json"):
        json.loads(block)


@each_page
def test_files_on_the_page_can_be_read(page):
    for block in blocks(page, "yaml"):
        assert list(yaml.safe_load_all(block))
    for block in blocks(page, "toml"):
        assert tomllib.loads(block)
    for block in blocks(page, "ini"):
        configparser.ConfigParser(strict=False, interpolation=None).read_string(f"[head]\n{block}")


# SQL


def roles_in(text: str) -> set[str]:
    return set(re.findall(r"\bTO (\w+);", text))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sql")], ids=name_of)
def test_sql_on_the_page_runs(page, sql):
    """In a transaction that is rolled back, with the roles and other people's tables that it names."""
    for table in ("django_tasks_database_dbtaskresult", "shop_order", "shop_product"):
        sql(f"CREATE TABLE IF NOT EXISTS {table} ()")
    for role in sorted({role for block in blocks(page, "sql") for role in roles_in(block)}):
        sql(f"DROP ROLE IF EXISTS {role}")  # of a run that was killed
        sql(f"CREATE ROLE {role}")
    for block in blocks(page, "sql", "postgresql"):
        sql(block)


def test_dump_for_staging_has_the_schedules_and_no_other_rows():
    [dump] = [block for block in blocks(DOCS / "how-to" / "staging.md", "console") if "pg_dump" in block]
    patterns = [pattern.replace("*", ".*") for pattern in re.findall(r"--exclude-table-data='(\S+)'", dump)]
    labels = ("pgqueue", "pgqueue_outbox", "pgqueue_cutover")
    tables = {model._meta.db_table for label in labels for model in apps.get_app_config(label).get_models()}
    kept = {table for table in tables if not any(re.fullmatch(pattern, table) for pattern in patterns)}
    assert kept == {"pgqueue_schedules"}


def test_statement_that_pg_cron_is_given_enqueues(sql):
    [statement] = re.findall(r"\$\$(.+?)\$\$", "".join(blocks(DOCS / "how-to" / "schedules.md", "postgresql")))
    sql(statement)
    assert Job.objects.get().unique_key == "close the day"
