"""What policies have as parameters, and how those of the older version are converted."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.errors import InputError
from tenantry.api.hostregister import HOSTS_MARK, PREFIX
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import INHERITED_FROM, SYSTEM_NAMESPACE, TENANT_UID, ZONE
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.policyparameters import MOST_BYTES, parameters, size, texts_of
from tenantry.api.rules import Rules
from tenantry.api.tenancyrules import MAPS, OWN_MARK
from tenantry.controllers import tenancyrules
from tenantry.engine.observed import observe
from tenantry.engine.plan import differences
from tenantry.install import manifests
from tenantry.install.upgrade import CopiedWorkload, ParameterMap, converted, rezoned
from tenantry.world.hosts import HostHolder, holders_in, part_of, register
from tenantry.world.inheritance import SCALED
from tenantry.world.rules import Layer, effective

WRITTEN_BY_NONE = {
    ("v1", "LimitRange"),
    ("v1", "Namespace"),
    ("v1", "ResourceQuota"),
    ("storage.k8s.io/v1", "StorageClass"),
}
"""Built-in kinds that Kubernetes' role `admin` lets owners only read, if at all.

`test_parameters.py` compares them with the role that Kubernetes aggregates.
"""


def test_parameters_are_of_built_in_kinds_that_owners_cannot_write() -> None:
    """E15, H06: the API server finds kinds of ours only 30 s after its start, and waits for all objects of a kind."""
    specs: list[Json] = [
        each["spec"] for each in manifests.everything() if str(each["kind"]).endswith("AdmissionPolicy")
    ]
    kinds = {(spec["paramKind"]["apiVersion"], spec["paramKind"]["kind"]) for spec in specs if "paramKind" in spec}
    assert kinds == WRITTEN_BY_NONE


def test_rules_that_do_not_fit_are_reported() -> None:
    """E15: the API server would refuse the object, and the rules before would stay in force without a word."""
    given = [
        msgspec.convert({"images": {"allowed": [f"{level}{number}{'x' * 240}" for number in range(32)]}}, Rules)
        for level in range(40)
    ]
    assert not tenancyrules.invalid(given[0])
    # Lists of patterns are kept side by side, one for each level of a deep tree.
    merged = effective([Layer(f"Subnamespace {level}", rules) for level, rules in enumerate(given)])
    with pytest.raises(InputError, match=rf"^spec\.rules must not be longer than {MOST_BYTES} bytes, merged"):
        tenancyrules.objects(merged, ObjectMeta(name="tenantry", namespace="acme"))


def test_a_cache_keeps_a_digest_of_parameters_and_sees_each_change() -> None:
    """H03: the texts of 10,000 namespaces would not fit in the memory of the operator."""
    wanted = parameters("tenantry-rules", "acme", "enforce", {"refused": "x" * 10_000})
    seen = observe(wanted.resource, _stored(wanted))
    assert max(map(len, seen.annotations.values())) < 100
    assert differences(wanted, seen) == ()
    other = parameters("tenantry-rules", "acme", "enforce", {"refused": "y"})
    assert differences(other, seen) == ("metadata.annotations[parameters.tenantry.dev/refused]",)
    limiting = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    changed = {**msgspec.json.decode(_stored(wanted)), "spec": limiting}
    assert differences(wanted, observe(wanted.resource, msgspec.json.encode(changed))) == ("spec",)


def _stored(value: msgspec.Struct) -> bytes:
    whole: Json = msgspec.to_builtins(value)
    return msgspec.json.encode({**whole, "metadata": {**whole["metadata"], "resourceVersion": "1"}})


def _map(name: str, purpose: str, data: dict[str, str], namespace: str = SYSTEM_NAMESPACE) -> ParameterMap:
    meta = ObjectMeta(name=name, namespace=namespace, labels={OWN_MARK: purpose})
    return ParameterMap(metadata=meta, data=data)


def test_the_register_of_the_older_version_keeps_each_owner() -> None:
    """H06: its parts were ConfigMaps with a host on each line, and an entry for each wildcard."""
    exact = {"3": "\na.b uid-1/one\nc.d /", "5": "\nx.y.z uid-2/two"}
    maps = [_map(f"{PREFIX}0", HOSTS_MARK, exact), _map(f"{PREFIX}wildcards", HOSTS_MARK, {".a.b": "uid-1/one"})]
    found: dict[str, HostHolder] = {}
    for each in converted(maps, {}, {"two": "zone-2", "other": "zone-3"}):
        assert each.metadata.labels[OWN_MARK] == HOSTS_MARK
        found |= holders_in(texts_of(each.metadata.annotations))
    one = HostHolder("uid-1", "one")
    assert found == {"a.b": one, "c.d": HostHolder("", ""), "x.y.z": HostHolder("zone-2", "two"), "*.a.b": one}


def test_rules_and_copies_of_the_older_version_are_converted_or_the_upgrade_stops() -> None:
    rules = _map(MAPS["enforce"], "enforce", {"refused": "a\tb"}, "acme")
    labels = {INHERITED_FROM: "above"}
    copies = [CopiedWorkload(ObjectMeta(name=name, namespace="acme", labels=labels)) for name in ("web", "api")]
    first, second = converted([rules], {SCALED[0]: copies}, {})
    assert first == parameters(MAPS["enforce"], "acme", "enforce", {"refused": "a\tb"})
    assert texts_of(second.metadata.annotations) == {"source": "above", "deployments": "\napi\nweb\n"}
    long = _map(MAPS["enforce"], "enforce", {"refused": "x" * MOST_BYTES}, "acme")
    assert size(long.data) > MOST_BYTES
    with pytest.raises(InputError, match=r"^ConfigMap 'acme/tenantry-rules' has rules of"):
        converted([long], {}, {})


def test_hosts_of_subtenants_that_are_registered_for_their_tenant_get_their_zone() -> None:
    """H06: as the versions wrote them that had this kind of register, and no zones."""
    holders = {
        "a.example": HostHolder("uid", "acme"),
        "b.example": HostHolder("uid", "sub"),
        "*.b.example": HostHolder("uid", "sub"),
        "c.example": HostHolder("zone", "sub"),
        "d.example": HostHolder("uid", "work"),
        "e.example": HostHolder("", "default"),
        "f.example": HostHolder("other", "gone"),
    }
    parts = [
        parameters(f"{PREFIX}{part}", SYSTEM_NAMESPACE, HOSTS_MARK, texts) for part, texts in register(holders).items()
    ]
    below = [_below("sub", "zone"), _below("work", "uid")]
    changed = rezoned(parts, below)
    found: dict[str, HostHolder] = {}
    for each in {**{one.key: one for one in parts}, **{one.key: one for one in changed}}.values():
        found |= holders_in(texts_of(each.metadata.annotations))
    moved = dict.fromkeys(("b.example", "*.b.example"), HostHolder("zone", "sub"))
    assert found == holders | moved
    assert len(changed) == len({part_of(host) for host in moved})
    assert rezoned(changed, below) == []


def _below(name: str, zone: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, labels={TENANT_UID: "uid", ZONE: zone}))
