"""Shared parts of the management commands: options, choosing jobs, printing."""
