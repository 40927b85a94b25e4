"""A module of an installed app that raises what is no Exception, as ``pytest.skip()`` does in a module of tests."""


class Skipped(BaseException):
    """Stand for the one of pytest."""


raise Skipped("only where there is a browser")
