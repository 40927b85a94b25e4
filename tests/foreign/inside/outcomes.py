"""Django's test runner, which writes down what has become of each test."""

import json
import os
import unittest
from collections.abc import Iterator
from pathlib import Path

from django.test.runner import DiscoverRunner


class Runner(DiscoverRunner):
    def run_suite(self, suite, **kwargs):
        outcomes = dict.fromkeys(ids(suite), "")
        result = super().run_suite(suite, **kwargs)
        for kind, told in (("failed", result.failures), ("error", result.errors)):
            for test, traceback in told:
                outcomes[getattr(test, "test_case", test).id()] = f"{kind}: {traceback.strip().splitlines()[-1]}"
        for test, why in result.skipped:
            outcomes[test.id()] = f"skipped: {why}"
        for test in result.unexpectedSuccesses:
            outcomes[test.id()] = "unexpected success"
        Path(os.environ["OUTCOMES"]).write_text(json.dumps(outcomes, indent=1))
        return result


def ids(suite: unittest.TestSuite) -> Iterator[str]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from ids(one)
        else:
            yield one.id()
