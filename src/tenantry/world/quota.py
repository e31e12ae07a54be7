"""Quota keys: which ones Tenantry divides, and one spelling for each.

Source: Kubernetes, "Resource Quotas". `cpu` and `requests.cpu` mean the same to Kubernetes but are counted apart: a
tenant's quota has only the longer spelling, so that sums over a tree are sums of one key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from tenantry.api.errors import InputError
from tenantry.api.quota import QUOTA_KEY
from tenantry.world import quantity

COMPUTE = ("cpu", "memory", "ephemeral-storage")
DEFAULT_REQUESTS = {"cpu": "100m", "ephemeral-storage": "256Mi", "memory": "128Mi"}
DEFAULT_LIMITS = {"cpu": "500m", "ephemeral-storage": "1Gi", "memory": "256Mi"}
"""The defaults of containers for resources that the tenant's quota covers (B03)."""
PODS = 110
"""The pods of a Node whose quota does not name them, as kubelet's default (--max-pods)."""

_SHORT = (*COMPUTE, "storage")
_key_form = re.compile(QUOTA_KEY)
_MOST_REMEMBERED_CHARACTERS = 1024


def normal_key(key: str) -> str:
    """Return the one spelling of a quota key.

    Raises:
        InputError: Kubernetes has no such key, or accepts it and never counts it.
    """
    if not _key_form.search(key) or "\n" in key:
        hint = f"; for an extended resource write requests.{key}" if "/" in key else ""
        raise InputError(
            f"quota key {key!r} is none that Kubernetes counts; keys are cpu, memory, limits.cpu, requests.storage,"
            f" pods, services, count/deployments.apps and the like{hint}"
        )
    if key in _SHORT or key.startswith("hugepages-"):
        return f"requests.{key}"
    return key


def node_key(resource: str) -> str:
    """Return the quota key of a node's resource; "" for one that no quota counts."""
    # The number of pods that a node can run is no part of it: a tenant's quota of pods counts pods.
    if resource == "pods":
        return ""
    try:
        # Extended resources are counted by quotas as requests.NAME only (Kubernetes, "Resource Quotas").
        return normal_key(f"requests.{resource}" if "/" in resource else resource)
    except InputError:
        return ""


def capacity(hard: Mapping[str, str | int]) -> dict[str, str]:
    """Return the capacity of a Node whose pods have a quota, with `pods`.

    Raises:
        InputError: As for `normal`.
    """
    given = {key.removeprefix("requests."): value for key, value in normal(hard).items()}
    of_nodes = {key: value for key, value in given.items() if not key.startswith(("limits.", "count/"))}
    return {"pods": str(PODS), **{key: value for key, value in of_nodes.items() if "storageclass" not in key}}


def normal(hard: Mapping[str, str | int]) -> dict[str, str]:
    """Return a quota with one spelling for each key and canonical quantities, sorted.

    Raises:
        InputError: A key or a quantity is invalid, a quantity is negative, or a key is present in both spellings.
    """
    given = tuple(hard.items())
    # Of other clusters, too: a quota may have any size.
    size = sum(len(key) + len(str(value)) for key, value in given)
    return dict(remembered(given) if size <= _MOST_REMEMBERED_CHARACTERS else _normal(given))


def _normal(hard: tuple[tuple[str, str | int], ...]) -> tuple[tuple[str, str], ...]:
    out: dict[str, str] = {}
    for key, given in sorted(hard):
        wanted = normal_key(key)
        if wanted in out:
            raise InputError(f"quota has {key!r} and another spelling of it; keep one")
        if quantity.parse(given) < 0:
            raise InputError(f"quota {key!r} is {given!r}; it must not be negative")
        out[wanted] = quantity.canonical(given)
    return tuple(sorted(out.items()))


remembered = lru_cache(maxsize=2048)(_normal)
"""Sums over the namespaces of a tenant read each of their quotas again."""
