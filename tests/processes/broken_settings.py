"""Settings with which new worker processes cannot start for as long as a file is there; as after a bad deploy."""

import multiprocessing
import os
from pathlib import Path

from tests.settings import *  # noqa: F403

if multiprocessing.parent_process() and Path(os.environ["BROKEN"]).exists():
    raise RuntimeError("This code cannot be imported.")
