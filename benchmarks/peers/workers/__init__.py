"""One module for each peer, run by its own interpreter: ``python -m benchmarks.peers.workers NAME control|work``.

A Node.js peer has an ``.mjs`` file with the same two roles.
"""
