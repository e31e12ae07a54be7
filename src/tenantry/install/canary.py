"""The policy that shows an installation that the API server enforces the policies that were just written. Pure.

That takes up to two seconds, in which the API server accepts what they refuse. It loads all policies together: once the
policy that was written last refuses, all are in force. It refuses only an object that no user needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from tenantry.api import marks
from tenantry.api.model import Json, Resource
from tenantry.install.policy import bound, rule, says, validating

NAME = "tenantry-canary"
PROBED = Resource("", "v1", "configmaps", "ConfigMap")


def canary(objects: Sequence[Json]) -> list[Json]:
    """Return the policy and its binding; its message has a digest of the objects that it stands for.

    Args:
        objects: Everything else that is installed.
    """
    policies = [value for value in objects if is_policy(value)]
    digest = hashlib.sha256(json.dumps(policies, sort_keys=True).encode()).hexdigest()[:16]
    policy = validating(
        NAME,
        [{**rule("", ["configmaps"], "CREATE"), "resourceNames": [NAME]}],
        [says("false", f"the policies {digest} of Tenantry are in force")],
        where={"matchLabels": {"kubernetes.io/metadata.name": marks.SYSTEM_NAMESPACE}},
    )
    return bound(policy)


def is_policy(value: Json) -> bool:
    """Return whether an object is a policy or binding that validates."""
    return str(value["kind"]).startswith("ValidatingAdmissionPolicy")


def is_canary(value: Json) -> bool:
    """Return whether an object is part of the canary."""
    return value["metadata"]["name"] == NAME


def probe() -> Json:
    """Return the object that it refuses."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}


def told_by(objects: Sequence[Json]) -> str:
    """Return the API server's message once the policies are in force; "" if no canary is among the objects."""
    policies = [value for value in objects if is_canary(value) and value["kind"] == "ValidatingAdmissionPolicy"]
    return policies[0]["spec"]["validations"][0]["message"] if policies else ""
