"""What the management commands share: options, choosing jobs, printing."""
