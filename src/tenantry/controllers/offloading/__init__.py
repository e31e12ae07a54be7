"""Which namespaces of this cluster also exist at peers."""
