"""The project of a benchmark with several databases of the queue, each on a server of its own."""

import os

import environ

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import DATABASES as ONE

DATABASES = {"default": ONE["default"]}
for number, url in enumerate(os.environ["SHARD_URLS"].split(), 1):
    DATABASES[f"shard_{number}"] = environ.Env.db_url_config(url) | {"NAME": "pgqueue_bench"}
PGQUEUE = {"SHARDS": {f"shard_{number}": {"number": number} for number in range(1, len(DATABASES))}}
