"""JSON merge patches applied, word for word as RFC 7396 (section 2) says: the judge of the patches that we make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

Json = dict[str, Any]


def merged(target: object, patch: Mapping[str, object]) -> Json:
    """Return what a server has after a merge patch; the target stays as it is."""
    result: Json = dict(cast("Json", target)) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), cast("Json", value))
        else:
            result[name] = value
    return result
