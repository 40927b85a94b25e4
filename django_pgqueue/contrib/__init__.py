"""Optional integrations. Nothing else in the package imports them."""
