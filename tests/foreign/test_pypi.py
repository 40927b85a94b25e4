"""The files that would be uploaded pass the check of twine, which renders their description as PyPI does."""

import pytest

from tests.support.wheel import build

REQUIREMENTS = "pypi"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_pypi_can_render_the_description(foreign, tmp_path, kind):
    told = foreign.run("-m", "twine", "--no-color", "check", "--strict", str(build(tmp_path, kind=kind)))
    assert "PASSED" in told
