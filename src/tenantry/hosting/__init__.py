"""Hosted control planes: a Kubernetes API server, its controllers and its datastore in one process, for any user."""
