"""The self-test of isolation: attempts made as a tenant, each of which Kubernetes should refuse (X06)."""
