"""The forms that names have in Kubernetes, as RE2 and Python both read them."""

from __future__ import annotations

DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

SERVER_PATTERN = r"^https://[^/?#\s@]+$"
"""The URL of a server, without a path."""

PLAIN = r"^[^\x00-\x1f\x7f]*$"
"""No control characters: they separate values where policies read them; see policy/text.py."""
