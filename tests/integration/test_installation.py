"""Sabotage of the installation, one object at a time: the audit reports each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tenantry.api.model import Resource
from tenantry.api.policyparameters import PolicyParameters
from tenantry.install import manifests
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.views.installation import differences
from testkit.api import Api, until
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SYSTEM = "tenantry-system"
NEVER = {"name": "never", "expression": "false"}
MORE = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def _resource(kind: str) -> Resource:
    return next(resource_of(each) for each in manifests.foundation(manifests.LOCAL_USER) if each["kind"] == kind)


def _names(kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in manifests.foundation(manifests.LOCAL_USER) if each["kind"] == kind]


def _disarmed(value: Json) -> None:
    """A condition that never holds turns a policy off, and keeps everything else as it is."""
    value["spec"]["matchConditions"] = [*value["spec"].get("matchConditions", []), NEVER]


def _audited_only(value: Json) -> None:
    value["spec"]["validationActions"] = ["Audit"]


def _exempted(value: Json) -> None:
    first = value["spec"]["matchConditions"][0]
    first["expression"] = f"({first['expression']}) && request.userInfo.username != 'mallory'"


def _widened(value: Json) -> None:
    value["rules"] = [*(value.get("rules") or []), MORE]


def _bound(value: Json) -> None:
    one = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    value["subjects"] = [*value["subjects"], one]


def _unlabelled(value: Json) -> None:
    value["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"


async def _sabotaged(api: Api, kind: str, name: str, change: Callable[[Json], None]) -> list[str]:
    """Return what is reported after a change, which is undone then."""
    resource = _resource(kind)
    path = wire.path(resource, "", name)
    before = await api.get(resource, name)
    changed: Json = msgspec.json.decode(msgspec.json.encode(before))
    change(changed)
    await api.client.request("PUT", path, body=msgspec.json.encode(changed))
    try:
        return list(await differences(api.client) or ())
    finally:
        now = await api.get(resource, name)
        before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
        await api.client.request("PUT", path, body=msgspec.json.encode(before))


async def test_every_sabotage_of_the_installation_is_reported(api: Api, operator: Operator) -> None:
    """X06: a condition that turns a policy off, an exemption, a weaker binding, a wider role, a looser label."""

    async def clean() -> bool:
        return await differences(api.client) == ()

    await until(clean, "nothing differs before the sabotage")
    policies = _names("ValidatingAdmissionPolicy")
    cases: list[tuple[str, str, Callable[[Json], None], str]] = [
        *(("ValidatingAdmissionPolicy", name, _disarmed, "spec.matchConditions") for name in policies[::6]),
        ("ValidatingAdmissionPolicy", "tenantry-namespaces", _exempted, "spec.matchConditions"),
        ("MutatingAdmissionPolicy", _names("MutatingAdmissionPolicy")[0], _disarmed, "spec.matchConditions"),
        ("ValidatingAdmissionPolicyBinding", "tenantry-marks", _audited_only, "spec.validationActions"),
        ("ClusterRole", "tenantry-aggregate-to-owner", _widened, "rules"),
        ("ClusterRole", "tenantry-admin", _widened, "rules"),
        ("ClusterRoleBinding", "tenantry-operator", _bound, "subjects"),
        ("Namespace", SYSTEM, _unlabelled, "metadata.labels[pod-security.kubernetes.io/enforce]"),
    ]
    for kind, name, change, field in cases:
        assert await _sabotaged(api, kind, name, change) == [f"{kind} {name!r} differs in {field}"]
    # What Kubernetes collects into an aggregated role is no difference.
    assert await _sabotaged(api, "ClusterRole", "tenantry-owner", lambda _: None) == []
    await api.delete(_resource("ValidatingAdmissionPolicyBinding"), "tenantry-namespaces")
    try:
        assert await differences(api.client) == ("ValidatingAdmissionPolicyBinding 'tenantry-namespaces' is missing",)
    finally:
        shipped = manifests.foundation(manifests.LOCAL_USER)
        kind = "ValidatingAdmissionPolicyBinding"
        lost = next(
            each for each in shipped if each["kind"] == kind and each["metadata"]["name"] == "tenantry-namespaces"
        )
        await api.create(_resource(kind), lost)
    await operator.stop()
    parameters = PolicyParameters.resource
    (rules,) = [each for each in await api.list(parameters, SYSTEM) if each["metadata"]["name"] == "tenantry-rules"]
    annotations = dict.fromkeys(rules["metadata"]["annotations"], "")
    await api.patch(parameters, "tenantry-rules", {"metadata": {"annotations": annotations}}, SYSTEM)
    said = await differences(api.client)
    await operator.start()
    assert said == ("LimitRange 'tenantry-system/tenantry-rules' differs from what TenancyDefaults says",)
    await until(clean, "the operator has put the parameters back")
