"""How Kubernetes spells Secrets with a token of a ServiceAccount.

Source: Kubernetes, "Secrets" (ServiceAccount token Secrets).
"""

from __future__ import annotations

TOKEN_SECRET = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
"""The type of a Secret into which Kubernetes puts a token that never expires."""

ACCOUNT_NAME = "kubernetes.io/service-account.name"
"""The annotation of such a Secret with the name of its ServiceAccount."""
