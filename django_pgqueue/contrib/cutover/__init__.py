"""Switch from another queue call by call: both get each call, one runs it, and the results are compared.

An app of its own, to be installed for as long as the switch lasts. Importable before Django's apps are loaded.
"""

from django_pgqueue.contrib.cutover.enqueue import Cutover
from django_pgqueue.contrib.cutover.sides import new_side, old_side

__all__ = ["Cutover", "new_side", "old_side"]
