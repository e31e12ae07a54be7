"""The form of labels: pure. Source: Kubernetes, "Labels and Selectors", syntax and character set."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_label_key(text: str) -> bool:
    """Return whether a text is the key of a label or a taint."""
    prefix, slash, name = text.rpartition("/")
    return bool(_NAME.fullmatch(name)) and (not slash or bool(_PREFIX.fullmatch(prefix)))


def is_label_value(text: str) -> bool:
    """Return whether a text is the value of a label or a taint."""
    return not text or bool(_NAME.fullmatch(text))
