"""JSON merge patches applied exactly as in RFC 7396 (section 2), to check the patches of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

Json = dict[str, Any]


def merged(target: object, patch: Mapping[str, object]) -> Json:
    """Return the result of a merge patch, without changing the target."""
    result: Json = dict(cast("Json", target)) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), cast("Json", value))
        else:
            result[name] = value
    return result
