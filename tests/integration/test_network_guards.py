"""What a tenant's own NetworkPolicies may say, and what the API server refuses, whether the operator runs or not."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import NetworkPolicy
from tenantry.api.tenant import Tenant
from tenantry.local.cluster import LocalCluster
from testkit import versions
from testkit.api import Api, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
UID, ZONE = "tenantry.dev/tenant-uid", "tenantry.dev/zone"
PODS: Json = {"podSelector": {"matchLabels": {"app": "web"}}}
OTHERS: Json = {"namespaceSelector": {}}
OWN = "OWN"
"""Stands for the tenant's uid."""


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


def _of(labels: Json | None = None, *expressions: Json, **more: Json) -> Json:
    selector: Json = {}
    if labels is not None:
        selector["matchLabels"] = labels
    if expressions:
        selector["matchExpressions"] = list(expressions)
    return {"namespaceSelector": selector, **more}


def _block(cidr: str, *but: str) -> Json:
    return {"ipBlock": {"cidr": cidr, **({"except": list(but)} if but else {})}}


def _key(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


PEERS: dict[str, list[Json]] = {
    "every namespace": [OTHERS],
    "every namespace, beside one's own": [PODS, OTHERS],
    "some pods of every namespace": [{**OTHERS, **PODS}],
    "another tenant": [_of({UID: "x"})],
    "another zone": [_of({ZONE: "x"})],
    "a namespace by its name": [_of({"kubernetes.io/metadata.name": "kube-system"})],
    "by another label": [_of({"tenantry.dev/tenant": "acme"})],
    "all but oneself": [_of(None, _key(UID, "NotIn", OWN))],
    "all that belong to tenants": [_of(None, _key(UID, "Exists"))],
    "all that belong to none": [_of(None, _key(UID, "DoesNotExist"))],
    "oneself and another, by an expression": [_of(None, _key(UID, "In", OWN, "x"))],
    "oneself by an expression alone": [_of(None, _key(UID, "In", OWN))],
    "labels that are empty": [_of({})],
    "a label of that name elsewhere": [{"podSelector": {"matchLabels": {UID: OWN}}, "namespaceSelector": {}}],
    "any address": [_block("0.0.0.0/0")],
    "any address of IPv6": [_block("::/0")],
    "any address but a few": [_block("0.0.0.0/0", "10.0.0.0/8")],
    "half of all addresses": [_block("0.0.0.0/1"), _block("128.0.0.0/1")],
    "one address": [_block("10.1.2.3/32")],
    "the metadata address": [_block("169.254.169.254/32")],
    "a pod and an address": [PODS, _block("10.1.2.3/32")],
}
ODD = ("169.254.169.0254/32", "::ffff:169.254.0.0/112", "10.20.0.1/16", "0/0")
"""What a CIDR is not, or not quite."""

WITHOUT_PEERS: dict[str, list[Json]] = {
    "any peer": [{}],
    "any peer, by an empty list": [{"PEERS": []}],
    "any peer at a port": [{"ports": [{"port": 80}]}],
    "any peer at many ports": [{"ports": [{"port": 1, "endPort": 65535, "protocol": "TCP"}]}],
    "any peer, after a valid rule": [{"PEERS": [PODS]}, {"ports": [{"port": 80}]}],
}
RULES: dict[str, list[Json]] = {
    "any peer, beside one that is another": [{}, {"PEERS": [OTHERS]}],
    **{name: [{"PEERS": peers}] for name, peers in PEERS.items()},
}
POLICY_TYPES: list[list[str] | None] = [None, ["Ingress"], ["Egress"], ["Ingress", "Egress"]]


def _spec(field: str, rules: list[Json], types: list[str] | None, uid: str) -> Json:
    peers = "from" if field == "ingress" else "to"
    named = [{(peers if key == "PEERS" else key): value for key, value in rule.items()} for rule in rules]
    whole: Json = {"podSelector": {}, field: named, **({"policyTypes": types} if types is not None else {})}
    text = msgspec.json.encode(whole).decode().replace(f'"{OWN}"', f'"{uid}"')
    return msgspec.json.decode(text)


async def _write(api: Api, namespace: str, name: str, spec: Json) -> Json:
    return await api.create(NetworkPolicy.resource, {"metadata": {"name": name}, "spec": spec}, namespace)


async def _answer(api: Api, namespace: str, spec: Json) -> str:
    """Return why a policy is refused, "" where it is not."""
    try:
        await api.create(NetworkPolicy.resource, {"metadata": {"generateName": "p-"}, "spec": spec}, namespace)
    except (Forbidden, Invalid) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("isolation", ["Isolated", "Baseline"])
async def test_no_policy_of_an_owner_opens_the_tenant(api: Api, alice: Api, name: str, isolation: str) -> None:
    """H06: each attack, inwards and outwards, with every policyTypes; what to write instead is said."""
    tenant = await api.make_tenant(name, isolation={"network": isolation})
    wrong: list[str] = []
    for field, (what, rules), types in itertools.product(("ingress", "egress"), RULES.items(), POLICY_TYPES):
        answer = await _answer(alice, name, _spec(field, rules, types, tenant.metadata.uid))
        if f"spec.{field}: each rule must have" not in answer or f"select {UID}: {tenant.metadata.uid}" not in answer:
            wrong.append(f"{field} {types} {what}: {answer}")
    assert wrong == []


async def test_addresses_in_odd_forms_are_refused(api: Api, alice: Api, name: str) -> None:
    """H06: by Kubernetes or by the policy, whatever is allowed."""
    await api.make_tenant(name, isolation={"network": "Baseline", "allowedCidrs": ["10.20.0.0/20"]})
    specs: dict[str, Json] = {cidr: {"podSelector": {}, "egress": [{"to": [_block(cidr)]}]} for cidr in ODD}
    assert [cidr for cidr, spec in specs.items() if not await _answer(alice, name, spec)] == []


async def test_an_owner_confines_their_pods_further(api: Api, alice: Api, name: str) -> None:
    """H06: policies within the tree are the owner's own affair."""
    uid = (await api.make_tenant(name)).metadata.uid
    own = _of({UID: uid})
    specs: tuple[Json, ...] = (
        {"policyTypes": ["Ingress", "Egress"]},
        {"policyTypes": ["Ingress"], "ingress": [{"from": [PODS, own, {**own, **PODS}]}]},
        {"policyTypes": ["Egress"], "egress": [{"to": [own], "ports": [{"port": 80, "endPort": 90}]}]},
        {"policyTypes": ["Ingress"], "ingress": [{"from": [_of({ZONE: uid}), _of({UID: uid, ZONE: "other"})]}]},
        {"policyTypes": ["Egress"], "egress": [{"to": [_of({UID: uid}, _key("team", "NotIn", "red"))]}]},
        {"policyTypes": ["Egress"], "egress": [{"to": [_of({"kubernetes.io/metadata.name": name}, **PODS)]}]},
    )
    for number, spec in enumerate(specs):
        await _write(alice, name, f"n{number}", {"podSelector": {}, **spec})
    assert len(await api.list(NetworkPolicy.resource, name)) == 1 + len(specs)


@versions.changes_without_the_operator
async def test_rules_without_peers_get_the_zone(api: Api, alice: Api, operator: Operator, name: str) -> None:
    """H06: as charts write them; by every verb, whether the operator runs or not, and once."""
    zone = [_of({ZONE: (await api.make_tenant(name)).metadata.uid})]
    await operator.stop()
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for what, rules in WITHOUT_PEERS.items():
            spec = _spec(field, rules, None, "")
            wanted = [{**rule, peers: rule.get(peers) or zone} for rule in spec[field]]
            metadata = {"generateName": "p-"}
            made = await alice.create(NetworkPolicy.resource, {"metadata": metadata, "spec": spec}, name)
            assert _without_protocols(made["spec"][field]) == _without_protocols(wanted), what
    whole: Json = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "mine"}}
    opened: Json = {**whole, "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}}
    applied, again = [
        msgspec.json.decode(await alice.client.apply(NetworkPolicy.resource, name, "mine", opened)) for _ in range(2)
    ]
    assert applied["spec"]["egress"] == [{"to": zone}]
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    merged = await alice.patch(NetworkPolicy.resource, "mine", {"spec": {"ingress": [{}, {"from": [PODS]}]}}, name)
    assert merged["spec"]["ingress"] == [{"from": zone}, {"from": [PODS]}]


def _without_protocols(rules: list[Json]) -> list[Json]:
    """Return rules without the protocol that the API server adds to a port."""
    bare = [{**rule, "ports": [{**port, "protocol": "TCP"} for port in rule.get("ports", ())]} for rule in rules]
    return [{key: value for key, value in rule.items() if value} for rule in bare]


async def test_an_update_opens_no_more_than_a_creation(api: Api, alice: Api, name: str) -> None:
    """H06: neither by a patch nor by server-side apply; labels of a policy that is there may change."""
    await api.make_tenant(name)
    await _write(alice, name, "mine", {"podSelector": {}, "policyTypes": ["Ingress"]})
    opened: Json = {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [OTHERS]}]}}
    with pytest.raises(Forbidden, match=r"spec\.ingress"):
        await alice.patch(NetworkPolicy.resource, "mine", opened, name)
    whole = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "mine"}, **opened}
    with pytest.raises(Forbidden, match=r"spec\.ingress"):
        await alice.client.apply(NetworkPolicy.resource, name, "mine", whole)
    await alice.patch(NetworkPolicy.resource, "mine", {"metadata": {"labels": {"a": "b"}}}, name)


async def test_a_policy_that_is_open_from_before_can_be_labelled_and_deleted(api: Api, alice: Api, name: str) -> None:
    """H06: what was written while the tenant was Open must not keep a namespace from ending."""
    uid = (await api.make_tenant(name, isolation={"network": "Open"})).metadata.uid
    zone = [{"from": [_of({ZONE: uid})]}]
    await _write(alice, name, "wide", {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]})
    await _write(alice, name, "others", {"podSelector": {}, "ingress": [{"from": [OTHERS]}]})
    await api.patch(Tenant.resource, name, {"spec": {"isolation": {"network": "Isolated"}}})
    await api.ready(name)
    changed: Json = {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}

    async def closed() -> bool:
        return "spec.ingress" in await refusal(alice, NetworkPolicy.resource, changed, name, patch="others")

    await until(closed, "a change is refused, once the API server has seen the namespace")
    for each in ("wide", "others"):
        made = await alice.patch(NetworkPolicy.resource, each, {"metadata": {"labels": {"a": "b"}}}, name)
        assert made["spec"]["ingress"] != zone
    with pytest.raises(Forbidden, match=r"spec\.ingress"):
        await alice.patch(NetworkPolicy.resource, "others", changed, name)
    assert (await alice.patch(NetworkPolicy.resource, "wide", changed, name))["spec"]["ingress"] == zone
    for each in ("wide", "others"):
        await alice.delete(NetworkPolicy.resource, each, name, propagation="Foreground")
        await api.gone(NetworkPolicy.resource, each, name)


async def test_addresses_are_opened_within_what_an_administrator_allows(api: Api, alice: Api, name: str) -> None:
    """H06: Tenant.spec.isolation.allowedCidrs; narrower is right, wider and beside are not; taken back, it ends."""
    await api.make_tenant(name, isolation={"allowedCidrs": ["10.20.0.0/16", "2001:db8::/32"]})
    right = [_block("10.20.0.0/16"), _block("10.20.3.0/24", "10.20.3.7/32"), _block("2001:db8:1::/48"), PODS]
    for field, peers in (("ingress", "from"), ("egress", "to")):
        await _write(alice, name, f"right-{field}", {"podSelector": {}, field: [{peers: right}]})
        for wrong in ("10.0.0.0/8", "10.21.0.0/16", "0.0.0.0/0", "2001:db9::/32", "::/0"):
            with pytest.raises(Forbidden, match=r"or an ipBlock within 10\.20\.0\.0/16, 2001:db8::/32"):
                await _write(alice, name, "wrong", {"podSelector": {}, field: [{peers: [_block(wrong)]}]})
    await api.patch(Tenant.resource, name, {"spec": {"isolation": {"allowedCidrs": None}}})
    late: Json = {"podSelector": {}, "egress": [{"to": [_block("10.20.0.0/16")]}]}
    await until(lambda: _answer(alice, name, late), "it is refused, once the API server has seen the namespace")


async def test_an_open_tenant_writes_what_it_likes(api: Api, alice: Api, name: str) -> None:
    """H06: what is refused depends on the tenant's isolation."""
    await api.make_tenant(name, isolation={"network": "Open"})
    await _write(alice, name, "in", {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]})


async def test_policies_are_refused_while_the_operator_is_down(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """H06: the API server itself refuses, and takes what is right."""
    await api.make_tenant(name)
    await operator.stop()
    with pytest.raises(Forbidden, match=r"spec\.egress"):
        await _write(alice, name, "out", {"podSelector": {}, "egress": [{"to": [OTHERS]}]})
    await _write(alice, name, "in", {"podSelector": {}, "ingress": [{"from": [PODS]}]})
