"""The shop's own tests, and the examples of the page about testing, which are tests of the shop."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.plugin import PLUGIN
from tests.support.waiting import LONG_PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent
PROJECT = ROOT / "example_project"
PAGE = ROOT / "docs" / "how-to" / "test-your-jobs.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


def run(shop: Path, *command: str) -> subprocess.CompletedProcess:
    """Run a command of the shop on a database of the tests' server, with a folder of its own for all it writes."""
    environment = os.environ | {"SHOP_VAR": str(shop), "PYTHONPATH": os.pathsep.join(map(str, (ROOT, PROJECT)))}
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=environment | {"DJANGO_SETTINGS_MODULE": "shop_site.settings"},
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE_SECONDS,
        check=False,
    )


def test_tests_of_the_shop_pass(tmp_path):
    result = run(tmp_path, "manage.py", "test", "--noinput", "shop")
    assert result.returncode == 0, result.stdout + result.stderr
    number = len(re.findall(r"^    def test_", (PROJECT / "shop" / "tests.py").read_text(), flags=re.MULTILINE))
    assert f"Ran {number} tests" in result.stderr


def test_tests_of_the_shop_fail_where_work_is_not_enqueued(tmp_path):
    """They are no tests if they do not."""
    code = textwrap.dedent("""
        import sys
        from unittest import mock
        import django
        from django.core.management import execute_from_command_line
        django.setup()
        from shop.tasks import send_receipt
        send_receipt.enqueue = lambda *_: None
        execute_from_command_line(["manage.py", "test", "--noinput", "shop.tests.OrderTest"])
    """)
    result = run(tmp_path, "-c", code)
    failed = set(re.findall(r"^(?:FAIL|ERROR): (\w+)", result.stderr, flags=re.MULTILINE))
    assert {"test_order_enqueues_its_work", "test_customer_gets_a_receipt"} <= failed, result.stderr


def test_examples_of_the_page_pass(tmp_path):
    examples = tmp_path / "examples"
    examples.mkdir()
    for number, example in enumerate(EXAMPLES):
        (examples / f"test_example_{number}.py").write_text(example)
    options = ("-n0", "-p", "no:cacheprovider", "--rootdir", str(examples), "-c", os.devnull, *PLUGIN)
    result = run(tmp_path, "-m", "pytest", "-rA", *options, str(examples))
    assert result.returncode == 0, result.stdout + result.stderr
    number = sum(len(re.findall(r"^ *def test_", example, flags=re.MULTILINE)) for example in EXAMPLES)
    assert len(re.findall(r"^PASSED", result.stdout, flags=re.MULTILINE)) == number
    assert number >= len(EXAMPLES)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_of_the_page_is_a_test(number):
    assert re.search(r"^ *def test_", EXAMPLES[number], flags=re.MULTILINE)
