"""Who reaches whom, by the policies that are in the API server; `testkit.connectivity` tells."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.marks import SUBNAMESPACE_UID, ZONE
from tenantry.api.marks import TENANT_UID as UID
from tenantry.kube import wire
from testkit.api import Api, until
from testkit.connectivity import Fabric, Outside, Place, Pod, Policy
from testkit.requests import People
from testkit.trees import WORKSPACE, Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
DNS = Pod("kube-system", "10.3.0.1", (("k8s-app", "kube-dns"),))
SYSTEM = Pod("kube-system", "10.3.0.2")
AROUND: dict[str, Place] = {
    "dns": DNS,
    "system": SYSTEM,
    "plain": Pod("default", "10.3.0.3"),
    "metadata": Outside("169.254.169.254"),
    "metadata6": Outside("fd00:ec2::254"),
    "node-local-dns": Outside("169.254.20.10"),
    "internet": Outside("198.51.100.7"),
    "internet6": Outside("2001:db8::7"),
}
OPEN = {"dns", "system", "plain", "internet", "internet6"}
"""What pods of a Baseline tenant reach."""


async def _fabric(api: Api) -> Fabric:
    namespaces = {each["metadata"]["name"]: each["metadata"]["labels"] for each in await api.list(Namespace.resource)}
    return Fabric(namespaces, msgspec.convert(await api.list(NetworkPolicy.resource), list[Policy], strict=False))


def _pods(*namespaces: str) -> dict[str, Place]:
    return {name: Pod(name, f"10.1.0.{number}") for number, name in enumerate(namespaces, 1)}


def _reached(
    fabric: Fabric, places: Mapping[str, Place], source: str, port: int = 80, protocol: str = "TCP"
) -> set[str]:
    return {name for name, each in places.items() if fabric.allows(places[source], each, port, protocol)}


def _pairs(fabric: Fabric, places: Mapping[str, Place]) -> set[tuple[str, str, int]]:
    return {
        (source, target, port)
        for port in (53, 80)
        for source in places
        for target in _reached(fabric, places, source, port)
    }


async def test_the_matrix_of_tenants_subtenants_and_what_is_around_them(api: Api, trees: Trees, name: str) -> None:
    """H06, E03: a zone reaches itself and DNS; Baseline reaches out, not metadata; no tenant reaches another's pods."""
    core, other, base = name, f"{name}-b", f"{name}-c"
    for tenant, isolation in ((core, "Isolated"), (other, "Isolated"), (base, "Baseline")):
        await api.make_tenant(tenant, isolation={"network": isolation})
    web = await trees.make(core, "web")
    customer = await trees.make(core, "customer", subtenant("carl"))
    app = await trees.make(customer, "app")
    theirs = await trees.make(customer, "theirs", subtenant("cora"))
    branch = await trees.make(base, "branch", subtenant("bea"))
    confined = Pod(base, "10.2.0.1", (("tenantry.dev/egress", "own"),))
    places = {**_pods(core, web, customer, app, theirs, other, base, branch), "confined": confined, **AROUND}
    fabric = await _fabric(api)
    zones = [{core, web}, {customer, app}, {theirs}, {other}]
    expected = {member: zone for zone in zones for member in zone}
    expected |= {base: {base, "confined", *OPEN}, branch: {branch, *OPEN}, "confined": {base, "confined"}}
    outsiders = set(AROUND)
    expected |= dict.fromkeys(AROUND, outsiders)
    assert {source: _reached(fabric, places, source) for source in places} == expected
    dns = {"dns", "node-local-dns"}
    for source in (core, web, customer, app, theirs, other, base, branch, "confined"):
        for protocol in ("UDP", "TCP"):
            assert _reached(fabric, places, source, 53, protocol) == expected[source] | dns


async def test_a_parent_does_not_open_its_subtenant_nor_the_other_way_round(
    api: Api, trees: Trees, people: People, name: str
) -> None:
    """H06: only a Subtenant opens itself; once both sides are open, they reach each other, and no third zone does."""
    uid = (await api.make_tenant(name)).metadata.uid
    await api.make_tenant(f"{name}-b")
    customer = await trees.make(name, "customer", subtenant("carl"))
    places = {**_pods(name, customer, f"{name}-b"), **AROUND}
    before = _pairs(await _fabric(api), places)
    alice, carl = await people.person("alice"), await people.person("carl")
    whole_tree: Json = {"namespaceSelector": {"matchLabels": {UID: uid}}}
    both: Json = {"podSelector": {}, "ingress": [{"from": [whole_tree]}], "egress": [{"to": [whole_tree]}]}
    await alice.create(NetworkPolicy.resource, {"metadata": {"name": "open"}, "spec": both}, name)
    assert _pairs(await _fabric(api), places) == before
    one: Json = {
        "podSelector": {},
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {UID: uid, ZONE: uid}}}]}],
    }
    await carl.create(NetworkPolicy.resource, {"metadata": {"name": "serve"}, "spec": one}, customer)
    gained = _pairs(await _fabric(api), places) - before
    assert gained == {(name, customer, 53), (name, customer, 80)}


async def test_whatever_an_owner_may_write_opens_nothing(api: Api, people: People, trees: Trees, name: str) -> None:
    """H06: policies drawn at random: no accepted one lets a pod reach what it did not reach before."""
    await api.make_tenant(f"{name}-b")
    uid = (await api.make_tenant(name)).metadata.uid
    base = (await api.make_tenant(f"{name}-c", isolation={"network": "Baseline"})).metadata.uid
    customer = await trees.make(name, "customer", subtenant("carl"))
    places = {**_pods(name, f"{name}-b", f"{name}-c", customer), **AROUND}
    fabric = await _fabric(api)
    before = _pairs(fabric, places)
    alice = await people.person("alice")
    chance = random.Random(6)
    accepted = 0
    for number in range(240):
        namespace, own = ((name, uid), (f"{name}-c", base))[number % 2]
        policy = await _tried(alice, namespace, _drawn(chance, own))
        if policy is not None:
            accepted += 1
            added = Fabric(fabric.namespaces, [*fabric.policies, policy])
            assert _pairs(added, places) <= before, policy
    assert accepted > 24


def _drawn(chance: random.Random, uid: str) -> Json:
    selectors: Sequence[Json] = (
        {},
        {"matchLabels": {UID: uid}},
        {"matchLabels": {ZONE: uid}},
        {"matchLabels": {ZONE: "x"}},
        {"matchLabels": {UID: uid, "team": "red"}},
        {"matchExpressions": [{"key": UID, "operator": "NotIn", "values": [uid]}]},
        {"matchLabels": {UID: uid}, "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
    )
    peers: Sequence[Json] = (
        *({"namespaceSelector": each} for each in selectors),
        *({"namespaceSelector": each, "podSelector": {}} for each in selectors),
        *({"podSelector": {}} for _ in range(8)),
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
        {"ipBlock": {"cidr": "169.254.0.0/16"}},
    )
    ports: Sequence[list[Json]] = ([], [{"port": 80}], [{"port": 53, "endPort": 90}], [{"protocol": "UDP"}])
    spec: Json = {"podSelector": chance.choice([{}, {"matchLabels": {"app": "web"}}])}
    for field, side in (("ingress", "from"), ("egress", "to")):
        if chance.random() < 0.7:
            rules = range(chance.randint(0, 2))
            spec[field] = [
                _rule(side, chance.choices(peers, k=chance.randint(0, 2)), chance.choice(ports)) for _ in rules
            ]
    types = chance.choice([None, ["Ingress"], ["Egress"], ["Ingress", "Egress"]])
    return {**spec, **({"policyTypes": types} if types else {})}


def _rule(side: str, peers: list[Json], ports: list[Json]) -> Json:
    return {**({side: peers} if peers else {}), **({"ports": ports} if ports else {})}


async def _tried(api: Api, namespace: str, spec: Json) -> Policy | None:
    """Return a policy as it would be stored, None where it is refused."""
    whole = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "drawn"}, "spec": spec}
    path = wire.path(NetworkPolicy.resource, namespace)
    try:
        answer = await api.client.request("POST", path, query={"dryRun": "All"}, body=msgspec.json.encode(whole))
    except (Forbidden, Invalid):
        return None
    return msgspec.json.decode(answer, type=Policy)


async def test_what_moves_gets_the_zone_of_its_new_place(api: Api, trees: Trees, name: str) -> None:
    """H06: with all that is below it; the old neighbours no longer reach it. Only an administrator moves so far."""
    uid = (await api.make_tenant(name)).metadata.uid
    customer = await trees.make(name, "customer", subtenant("carl"))
    team = await trees.make(name, "team")
    deep = await trees.make(team, "deep")
    assert {(await trees.labels(each))[ZONE] for each in (name, team, deep)} == {uid}
    asked = await trees.ask(customer, "team", {**WORKSPACE, "adopt": {"namespace": team}})
    await api.patch(Namespace.resource, team, {"metadata": {"labels": {SUBNAMESPACE_UID: asked.metadata.uid}}})
    zone = (await trees.get(name, "customer")).metadata.uid

    async def moved() -> bool:
        return {(await trees.labels(each))[ZONE] for each in (customer, team, deep)} == {zone}

    await until(moved, "all have the zone of the Subtenant")
    places = _pods(name, customer, team, deep)

    async def reaches() -> bool:
        fabric = await _fabric(api)
        return all(_reached(fabric, places, each) == {customer, team, deep} for each in (customer, team, deep))

    await until(reaches, "they reach each other and no other zone")
    assert _reached(await _fabric(api), places, name) == {name}


@pytest.mark.long
async def test_a_zone_that_was_changed_is_put_back(api: Api, trees: Trees, name: str) -> None:
    """H06: an administrator's slip, or a namespace from before there were zones."""
    uid = (await api.make_tenant(name)).metadata.uid
    team = await trees.make(name, "team")
    for namespace, value in ((name, "x"), (team, None)):
        await api.patch(Namespace.resource, namespace, {"metadata": {"labels": {ZONE: value}}})

    async def put_back() -> bool:
        return {(await trees.labels(each)).get(ZONE) for each in (name, team)} == {uid}

    await until(put_back, "the zone is there again")
