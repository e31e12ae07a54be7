"""The policies and parameters of the version before `PolicyParameters`: the same rules, in ConfigMaps.

That version's policies differ from today's only in where they read: `params.data` of a ConfigMap.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tenantry.api.model import Resource
from tenantry.api.policyparameters import PREFIX, PolicyParameters, texts_of
from tenantry.install import canary, manifests
from tenantry.install.policy import IN_TENANTS, PARAM_KIND, refusing, rule
from tenantry.install.upgrade import RETIRED
from tenantry.world.inheritance import COPIES, SCALED

Json = dict[str, Any]

_HAS = re.compile(
    rf"has\(params\.metadata\.annotations\) && '{re.escape(PREFIX)}(\w+)' in params\.metadata\.annotations"
)
_READ = re.compile(rf"params\.metadata\.annotations\['{re.escape(PREFIX)}(\w+)'\]")
_RULES = "tenantry-rules-"


def foundation() -> list[Json]:
    """Return what that version installs, with the rules and the policies on the scale of copies as they were then."""
    whole = manifests.foundation(manifests.LOCAL_USER)
    kept = [made for value in whole if not _is_later(value) for made in _older(value)]
    retired = [name for name in RETIRED["Validating"] if not name.startswith(COPIES)]
    return [*kept, *(made for name in retired for made in _retired(name))]


def _retired(name: str) -> list[Json]:
    """Return a policy that this version does not have, and its binding; it refuses names of Tenantry."""
    about = rule("", ["configmaps"], "CREATE")
    ours = {"ours": "object.metadata.name.startsWith('tenantry-taken')"}
    return refusing(name, [about], "'tenantry-taken' is Tenantry's", conditions=ours, where=IN_TENANTS)


def _is_later(value: Json) -> bool:
    """Return whether that version lacks an object, or it needs no parameters for what tests try."""
    return value["kind"] == PARAM_KIND["kind"] or canary.is_canary(value)


def _older(value: Json) -> list[Json]:
    name: str = value["metadata"]["name"]
    if name == COPIES:
        return [_scale(value, kind) for kind in SCALED]
    if not name.startswith(_RULES) or value["spec"].get("paramKind") != PARAM_KIND:
        return [value]
    text = _READ.sub(r"params.data.\1", _HAS.sub(r"has(params.data) && has(params.data.\1)", json.dumps(value["spec"])))
    assert PREFIX not in text
    return [{**value, "spec": {**json.loads(text), "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}]


def _scale(value: Json, kind: Resource) -> Json:
    """Return the policy on the scale of copies of a kind, or its binding, with the copies themselves as parameters."""
    spec: Json = value["spec"]
    name = f"{COPIES}-{kind.plural}"
    made = {**value, "metadata": {**value["metadata"], "name": name}}
    if "paramRef" in spec:
        copies = {"matchExpressions": [{"key": "tenantry.dev/inherited-from", "operator": "Exists"}]}
        reference = {"selector": copies, "parameterNotFoundAction": "Allow"}
        return {**made, "spec": {**spec, "policyName": name, "paramRef": reference}}
    about = [
        each for each in spec["matchConstraints"]["resourceRules"] if each["resources"] == [f"{kind.plural}/scale"]
    ]
    holds = "params == null || params.metadata.name != request.name"
    refused = {"expression": holds, "message": "it is inherited", "reason": "Forbidden"}
    parameters = {"apiVersion": kind.api_version, "kind": kind.kind}
    match = {**spec["matchConstraints"], "resourceRules": about}
    return {**made, "spec": {**spec, "matchConstraints": match, "validations": [refused], "paramKind": parameters}}


def config_map(value: PolicyParameters) -> Json:
    """Return the ConfigMap in which that version keeps parameters."""
    meta = value.metadata
    labels = {**meta.labels, "tenantry.dev/tenant": "acme"}
    return {"metadata": {"name": meta.name, "labels": labels}, "data": texts_of(meta.annotations)}
