"""Objects of the Hierarchical Namespace Controller, and their import. Pure."""
