"""A package that is no installed app: whatever is in it, no job may have it imported."""
