"""Requirements on any backend of django.tasks, tried on the one that ``--backend`` names.

See ``docs/internals/tasks-conformance.md``: what is tested, how to run it on a backend of one's own, what was found.
"""

from tests.conformance.drivers import chosen

DRIVER = chosen()
