"""Records which tenant owns each hostname, and reports objects that use a host of another tenant."""
