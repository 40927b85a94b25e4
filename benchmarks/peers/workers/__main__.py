import importlib
import sys

from benchmarks.peers.workers.base import serve

if __name__ == "__main__":
    name, role = sys.argv[1:]
    serve(importlib.import_module(f"benchmarks.peers.workers.{name}").Queue(), role)
