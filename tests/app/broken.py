"""A module of an installed app that cannot be imported."""

raise RuntimeError("no configuration for the mail service")
