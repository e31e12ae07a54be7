"""What a person reads, computed from an API server into typed results: no flags, no printing."""
