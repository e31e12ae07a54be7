"""Makes and keeps the child namespaces of Subnamespaces."""
