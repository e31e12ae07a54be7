"""Serves the mutations of policies as a webhook, for API servers without mutating policies."""
