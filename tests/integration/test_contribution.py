"""Nodes that their owners bring: let in by a token, one node for each, and labelled with what was agreed on."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tenantry.api import contribution, marks
from tenantry.api.errors import Forbidden, NotFound, Unauthorized
from tenantry.api.kubernetes import MIRROR, RBAC_GROUP, ClusterRoleBinding, Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodeview import NodeView, earlier_bindings
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenant import Tenant
from tenantry.controllers.contributions.signing import CLIENT, SigningRequest
from tenantry.controllers.nodeviews.desired import CONDITION
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.clock import rfc3339
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.cluster import LocalCluster
from tenantry.world.netpol.objects import NAMESPACES, POLICIES
from tenantry.world.netpol.services import ENDPOINT_SLICES
from testkit.api import PODS, SECRETS, Api, until
from testkit.certificates import request as signing_request
from testkit.operators import Operator
from testkit.pool import Pool, claim, free, state
from testkit.refusals import refusal
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
CORE_EVENTS = Resource("", "v1", "events", "Event")
READ_BEFORE = (PODS, NAMESPACES, Node.resource, POLICIES, ENDPOINT_SLICES)
"""What kube-proxy and the NetworkPolicy agent list with rights of their own. Kubernetes lets kubelets list Services."""


async def command(cluster: LocalCluster, *arguments: str) -> str:
    """Run a command of `tenantry node`; its stdout is returned."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "node", *arguments, f"--kubeconfig={cluster.kubeconfig_path}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode()


async def offer(cluster: LocalCluster, tenant: str, *more: str) -> tuple[str, str]:
    """Have a node contributed by the command; its name and the token are returned."""
    said = await command(cluster, "contribute", f"--tenant={tenant}", "--owner=ada", *more)
    token = said.split()[-1]
    return contribution.node_of(token.partition(".")[0]), token


async def is_known(token: str, cluster: LocalCluster, *, holds: bool) -> None:
    """Wait until a token is valid, or no longer: the API server reads it a moment later."""
    async with Client(_with_token(token, cluster)) as client:

        async def so() -> bool:
            try:
                await client.request("GET", "/version")
            except Unauthorized:
                return not holds
            return holds

        await until(so, f"the token is valid: {holds}")


def _with_token(token: str, cluster: LocalCluster) -> Connection:
    own = kubeconfig.load([cluster.kubeconfig_path])
    return msgspec.structs.replace(own, certificate=None, key=None, token=token)


async def ask(token: str, cluster: LocalCluster, name: str, node: str) -> None:
    """Ask with a token for the certificate of a node, as a kubelet does."""
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": CLIENT,
        "usages": ["digital signature", "client auth"],
    }
    async with Client(_with_token(token, cluster)) as client:
        await Api(client).create(SigningRequest.resource, {"metadata": {"name": name}, "spec": spec})


async def clean_up(api: Api, node: str, *requests: str) -> None:
    """Delete what of a contribution is not the test's namespace."""
    token_id = node.removeprefix(contribution.PREFIX)
    for each in requests:
        await api.delete(SigningRequest.resource, each)
    with suppress(NotFound):
        await api.delete(Node.resource, node)
    await api.delete(SECRETS, f"bootstrap-token-{token_id}", "kube-system")
    gone = contribution.change(node, None)
    await api.patch(PolicyParameters.resource, contribution.REGISTER, gone, marks.SYSTEM_NAMESPACE)


async def test_a_cluster_of_simulated_nodes_takes_no_contributed_node(tenancy: LocalCluster) -> None:
    """E19: its API server listens to no node, so a token would be worth nothing."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "node", "contribute", f"--name={tenancy.name}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert (child.returncode, out) == (2, b"")
    assert b"has no real nodes" in err


async def test_a_token_lets_one_node_in(api: Api, tenancy: LocalCluster, name: str) -> None:
    """E19: with it a kubelet gets the certificate of its node, and no other node's."""
    await api.make_tenant(name)
    node, token = await offer(tenancy, name)
    with pytest.raises(Unauthorized):
        await ask(f"{token[:-1]}{'a' if token[-1] != 'a' else 'b'}", tenancy, f"{name}-forged", node)
    await is_known(token, tenancy, holds=True)
    await ask(token, tenancy, f"{name}-other", "foreign")
    await ask(token, tenancy, f"{name}-own", node)

    async def issued() -> bool:
        found = await api.get(SigningRequest.resource, f"{name}-own")
        return bool(found["status"].get("certificate"))

    await until(issued, "the node has its certificate")
    own = await api.get(SigningRequest.resource, f"{name}-own")
    # Kubelets ask for no lifetime, and nothing revokes a certificate.
    assert own["spec"]["expirationSeconds"] == 86_400
    signed = x509.load_pem_x509_certificate(base64.b64decode(own["status"]["certificate"]))
    assert signed.not_valid_after_utc - dt.datetime.now(dt.UTC) <= dt.timedelta(days=1)
    assert "conditions" not in (await api.get(SigningRequest.resource, f"{name}-other")).get("status", {})
    await clean_up(api, node, f"{name}-own", f"{name}-other")


async def test_a_node_is_labelled_with_what_was_agreed_on(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19: owner, location, device and tenant come from the contribution, and from nothing that the node says."""
    await api.make_tenant(name)
    node, _ = await offer(tenancy, name, "--location=rome", "--device=raspberry-pi")
    itself = await people.node(node)
    lies = {marks.CONTRIBUTED_BY: "another", marks.LOCATION: "moon"}
    with pytest.raises(Forbidden, match="must not come from a node itself"):
        await itself.create(Node.resource, {"metadata": {"name": node, "labels": lies}})
    # No pods of other tests come: nothing runs there.
    await itself.create(Node.resource, {"metadata": {"name": node}, "spec": {"unschedulable": True}})
    agreed = {
        marks.CONTRIBUTED_BY: name,
        marks.OWNER: "ada",
        marks.LOCATION: "rome",
        marks.DEVICE: "raspberry-pi",
    }

    async def labelled() -> bool:
        labels = (await api.get(Node.resource, node))["metadata"].get("labels", {})
        return {key: labels.get(key) for key in marks.OF_CONTRIBUTIONS} == agreed

    await until(labelled, "the node has its labels")
    with pytest.raises(Forbidden, match="must not come from a node itself"):
        await itself.patch(Node.resource, node, {"metadata": {"labels": {marks.LOCATION: "moon"}}})
    # Whatever an administrator does to them by hand is put back.
    await api.patch(Node.resource, node, {"metadata": {"labels": {marks.LOCATION: None}}})
    await until(labelled, "the node has its labels again")
    await clean_up(api, node)


async def test_only_pods_of_the_contributors_tenant_run_on_its_node(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19: from its registration on, which a kubelet cannot undo; other tenants only if an administrator names them."""
    other = f"{name}-o"
    await api.make_tenant(name)
    await api.make_tenant(other)
    node, _ = await offer(tenancy, name)
    itself = await people.node(node)
    free = {"key": marks.CONTRIBUTED_BY, "value": other, "effect": "NoSchedule"}
    registered = await itself.create(Node.resource, {"metadata": {"name": node}, "spec": {"taints": [free]}})
    kept = [each for each in registered["spec"]["taints"] if each["key"] == marks.CONTRIBUTED_BY]
    assert kept == [{"key": marks.CONTRIBUTED_BY, "effect": "NoSchedule"}]
    with pytest.raises(Forbidden):
        await itself.patch(Node.resource, node, {"spec": {"taints": None}})

    async def named() -> bool:
        taints = (await api.get(Node.resource, node))["spec"].get("taints", [])
        return {**free, "value": name} in taints

    await until(named, "the taint names the tenant")
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1m", "memory": "1Mi"}}}

    async def put(namespace: str, **toleration: str) -> None:
        spec = {"containers": [container], "tolerations": [{"key": marks.CONTRIBUTED_BY, **toleration}]}
        await api.create(PODS, {"metadata": {"generateName": "p-"}, "spec": spec}, namespace)

    for toleration in ({"value": name}, {"operator": "Exists"}, {"value": ""}):
        with pytest.raises(Forbidden, match=r"an administrator names other tenants in spec\.isolation\.contributors"):
            await put(other, **toleration)
    await put(name, value=name)
    await api.patch(Tenant.resource, other, {"spec": {"isolation": {"contributors": [name]}}})

    async def admitted() -> bool:
        try:
            await put(other, value=name)
        except Forbidden:
            return False
        return True

    await until(admitted, "the other tenant is named")
    await clean_up(api, node)


async def test_a_contributed_node_reports_only_addresses_of_its_record(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19, H06: of its pods, within its ranges; of pods with its network, and of itself, the agreed ones."""
    await api.make_tenant(name)
    node, _ = await offer(tenancy, name, "--address=192.0.2.130", "--address=2001:db8::130")
    itself = await people.node(node)
    with pytest.raises(Forbidden, match=r"each of status\.addresses must be among '192\.0\.2\.130, 2001:db8::130'"):
        await itself.create(Node.resource, {"metadata": {"name": node}, **seen("203.0.113.1")})
    registered = {"metadata": {"name": node}, **seen("192.0.2.130", "2001:db8:0:0::130")}
    await itself.create(Node.resource, registered)
    # As Kubernetes' own controller assigns it; the operator takes it into the record.
    await api.patch(Node.resource, node, {"spec": {"podCIDR": "10.78.1.0/24", "podCIDRs": ["10.78.1.0/24"]}})

    async def is_assigned() -> bool:
        register = await api.get(PolicyParameters.resource, contribution.REGISTER, marks.SYSTEM_NAMESPACE)
        return "podCidrs=10.78.1.0/24" in register["metadata"]["annotations"][contribution.key_of(node)]

    await until(is_assigned, "the range is in the record")
    await keeps_to_its_record(api, tenancy, itself, node, name)
    await clean_up(api, node)


async def test_the_record_of_a_contributed_node_holds_without_the_operator(
    api: Api, operator: Operator, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19, H06: from its registration on, policies alone hold the node to its addresses, its ranges and no pods."""
    other = f"{name}-o"
    # By default, a rule refuses such a pod as well, and the API server reports only one of two refusals.
    for tenant in (name, other):
        await api.make_tenant(tenant, rules={"scheduling": {"nodeName": "Allow"}})
    await operator.stop()
    try:
        node, _ = await offer(tenancy, name, "--address=192.0.2.130", "--pod-cidr=10.78.1.0/24")
        itself = await people.node(node)
        for lie in (seen("203.0.113.1"), {"spec": {"podCIDR": "10.78.2.0/24", "podCIDRs": ["10.78.2.0/24"]}}):
            with pytest.raises(Forbidden, match="tenantry-contributed-node"):
                await itself.create(Node.resource, {"metadata": {"name": node}, **lie})
        registered = await itself.create(Node.resource, {"metadata": {"name": node}, **seen("192.0.2.130")})

        async def known() -> bool:
            # NodeRestriction looks for the owner of a mirror pod in a cache, which follows a moment later.
            return "not found" not in await refusal(itself, PODS, mirror(registered), name)

        await until(known, "admission knows the node")
        # Of the cluster's DNS, it would be an endpoint; of another tenant, its peer.
        for namespace in (other, name, "kube-system"):
            with pytest.raises(Forbidden, match=r"pods must not be created by a contributed node: .*staticPodPath"):
                await itself.create(PODS, mirror(registered), namespace)
        about = {"kind": "Pod", "name": "p", "namespace": other}
        event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "x"}
        with pytest.raises(Forbidden, match=r"event 'e' .*objects\.maxSizes"):
            await itself.create(CORE_EVENTS, {**event, "message": "x" * 500_000}, other)
        await itself.create(CORE_EVENTS, event, other)
        with pytest.raises(Forbidden, match=r"spec\.podCIDRs must not come from a node itself"):
            await itself.patch(Node.resource, node, {"spec": {"podCIDR": "10.78.2.0/24", "podCIDRs": ["10.78.2.0/24"]}})
        await keeps_to_its_record(api, tenancy, itself, node, name)
    finally:
        await operator.start()
    await clean_up(api, node)


async def test_a_contributed_node_reads_only_its_own_view(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19: nothing of other tenants, and no view of another node."""
    await api.make_tenant(name)
    (node, _), (other, _) = await asyncio.gather(offer(tenancy, name), offer(tenancy, name))
    itself = await people.node(node)
    await itself.create(Node.resource, {"metadata": {"name": node}})

    async def reads() -> bool:
        try:
            return bool(await itself.client.list(NodeView, selectors={"fieldSelector": f"metadata.name={node}"}))
        except Forbidden:
            return False

    await until(reads, "the node reads its view")
    for resource in READ_BEFORE:
        with pytest.raises(Forbidden):
            await itself.list(resource)
    await until(lambda: api.find(NodeView.resource, other), "the other node has a view")
    for refused in (itself.get(NodeView.resource, other), itself.list(NodeView.resource)):
        with pytest.raises(Forbidden):
            await refused
    with pytest.raises(Forbidden):
        await itself.patch(NodeView.resource, node, {"spec": {"digest": "0"}})
    await asyncio.gather(clean_up(api, node), clean_up(api, other))

    async def gone() -> bool:
        return await api.find(NodeView.resource, node) is None

    await until(gone, "the view goes with the record")


async def test_rights_of_an_earlier_version_are_reported_until_they_are_removed(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19: a node that joined before keeps working; an administrator decides when it reads only its view."""
    await api.make_tenant(name)
    node, _ = await offer(tenancy, name)
    itself = await people.node(node)
    await itself.create(Node.resource, {"metadata": {"name": node}})
    # As `tenantry node contribute` of an earlier version made it.
    subject = {"kind": "User", "name": f"system:node:{node}", "apiGroup": RBAC_GROUP}
    role = {"kind": "ClusterRole", "name": "system:node-proxier", "apiGroup": RBAC_GROUP}
    for earlier in earlier_bindings(node):
        meta = {"name": earlier, "labels": {marks.MANAGED_BY: marks.MANAGER}}
        await api.create(ClusterRoleBinding.resource, {"metadata": meta, "roleRef": role, "subjects": [subject]})

    async def status() -> str:
        found = (await api.get(Node.resource, node)).get("status", {}).get("conditions", [])
        return next((each["status"] for each in found if each["type"] == CONDITION), "")

    async def is_reported() -> bool:
        return await status() == "False"

    await until(is_reported, "the condition reports the earlier rights")
    await itself.list(ENDPOINT_SLICES)
    for earlier in earlier_bindings(node):
        await api.delete(ClusterRoleBinding.resource, earlier)

    async def is_over() -> bool:
        return await status() == "True"

    await until(is_over, "the condition is met")
    await clean_up(api, node)


async def keeps_to_its_record(api: Api, tenancy: LocalCluster, itself: Api, node: str, name: str) -> None:
    """Have a node with the address 192.0.2.130 and the range 10.78.1.0/24 report others, of itself and of its pods."""
    for lie in (seen("192.0.2.130", "203.0.113.1"), seen("kubernetes.default", type_="Hostname")):
        with pytest.raises(Forbidden, match="which tenantry-contributed-nodes records for node"):
            await report(itself, Node.resource, node, lie)
    await report(itself, Node.resource, node, seen("192.0.2.130"))
    for pod, host_network in (("own", False), ("host", True)):
        spec = {"nodeName": node, "hostNetwork": host_network, "containers": [{"name": "c", "image": "x"}]}
        await api.create(PODS, {"metadata": {"name": f"{name}-{pod}"}, "spec": spec}, "kube-system")

    async def is_reported() -> bool:
        try:
            await report(itself, PODS, f"{name}-own", at("10.78.1.7"), "kube-system")
        except Forbidden:
            return False
        return True

    await until(is_reported, "the policy knows the range")
    for pod, lie in (
        ("own", at("10.78.2.7")),
        ("own", at("192.0.2.130")),
        ("own", at("10.78.1.7", host="203.0.113.1")),
        ("host", at("10.78.1.8")),
        ("host", at("203.0.113.1")),
    ):
        with pytest.raises(Forbidden, match="tenantry-contributed-pod-addresses"):
            await report(itself, PODS, f"{name}-{pod}", lie, "kube-system")
    await report(itself, PODS, f"{name}-host", at("192.0.2.130"), "kube-system")
    # An administrator records another address; the node may report both.
    await command(tenancy, "record", node, "--address=192.0.2.130", "--address=192.0.2.131")

    async def is_recorded() -> bool:
        try:
            await report(itself, Node.resource, node, seen("192.0.2.130", "192.0.2.131"))
        except Forbidden:
            return False
        return True

    await until(is_recorded, "the policy knows the new address")
    for pod in ("own", "host"):
        path = wire.path(PODS, "kube-system", f"{name}-{pod}")
        await api.client.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def mirror(node: Json) -> Json:
    """Return the mirror of a static pod, which NodeRestriction lets a node create in every namespace."""
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    meta = {
        "name": f"static-{name}",
        "annotations": {MIRROR: "0"},
        "ownerReferences": [owner],
        "labels": {"k8s-app": "kube-dns"},
    }
    return {"metadata": meta, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "x"}]}}


def seen(*addresses: str, type_: str = "InternalIP") -> Json:
    """Return what a kubelet reports of its node."""
    return {"status": {"addresses": [{"type": type_, "address": each} for each in addresses]}}


def at(*ips: str, host: str = "192.0.2.130") -> Json:
    """Return what a kubelet reports of a pod."""
    return {"status": {"podIP": ips[0], "podIPs": [{"ip": each} for each in ips], "hostIP": host}}


async def report(itself: Api, resource: Resource, name: str, status: Json, namespace: str = "") -> None:
    """Write the status of a node or a pod as its kubelet does."""
    path = wire.path(resource, namespace, name, "status")
    body = msgspec.json.encode(status)
    await itself.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")


async def test_the_owners_tenant_has_the_first_claim(api: Api, pool: Pool, name: str) -> None:
    """E19: of nodes that do, a tenant gets those that were contributed for it, and others get them last."""
    first, _, third = await pool.add(3)
    other = f"{name}-o"
    await api.make_tenant(name)
    await api.make_tenant(other)
    await api.patch(Node.resource, third, {"metadata": {"labels": {marks.CONTRIBUTED_BY: name}}})
    await api.patch(Node.resource, first, {"metadata": {"labels": {marks.CONTRIBUTED_BY: "forged"}}})
    await pool.heard()
    await claim(api, name, "web", selector=pool.selector)
    assert (await state(api, name, "web", "Reserved"))["status"]["nodes"] == [third]
    await claim(api, other, "web", selector=pool.selector, count=2)
    assert (await state(api, other, "web", "Reserved"))["status"]["nodes"] == sorted(pool.nodes[:2])
    for each in (name, other):
        await api.delete(SliceClaim.resource, "web", each)
    await free(pool, pool.nodes)


async def test_a_slice_gives_up_a_node_that_its_owner_takes_back(api: Api, pool: Pool, name: str) -> None:
    """E19: the node goes back to all, and the slice has another one instead."""
    first, second = await pool.add(2)
    await api.make_tenant(name)
    await claim(api, name, "web", selector=pool.selector, users="Everybody", nodeNames=[first, second])
    assert (await state(api, name, "web", "Bound"))["status"]["nodes"] == [first]
    now = rfc3339(dt.datetime.now(dt.UTC))
    patch = {"metadata": {"annotations": {marks.TAKEN_BACK: now}}, "spec": {"unschedulable": True}}
    await api.patch(Node.resource, first, patch)
    await free(pool, [first])

    async def replaced() -> bool:
        found = await api.get(SliceClaim.resource, "web", name)
        return bool(found["status"].get("nodes") == [second] and found["status"]["state"] == "Bound")

    await until(replaced, "the slice has the other node")
    await api.delete(SliceClaim.resource, "web", name)
    await free(pool, [second])


async def test_a_contributed_node_adds_what_was_agreed_on_inside_its_claim_only(
    api: Api, tenancy: LocalCluster, pool: Pool, name: str
) -> None:
    """X03, E19: a tenant with a smaller quota claims the node that it brought; at the end, the quota shrinks first."""
    await api.make_tenant(name, quota={"hard": {"cpu": 2}})
    await pool.add(1)
    node, _ = await offer(tenancy, name, "--capacity=cpu=3")
    await pool.join(node, cpu="1000")
    await claim(api, name, "web", nodeNames=[node], users="Everybody")
    bound = await state(api, name, "web", "Bound")
    made = bound["status"]["slice"]

    async def has(cpus: str) -> bool:
        found = await api.get(ResourceQuota.resource, QUOTA, name)
        return bool(found["status"].get("hard", {}).get("requests.cpu") == cpus)

    await until(partial(has, "5"), "the agreed capacity is added")
    assert "charge" not in (await api.get(Slice.resource, made))["spec"]
    await api.delete(SliceClaim.resource, "web", name)

    async def unlabelled() -> bool:
        labels = (await api.get(Namespace.resource, name))["metadata"]["labels"]
        # Read after the label: a quota that shrinks later would be seen as it was.
        return marks.SLICE not in labels

    await until(unlabelled, "the namespace has no slice any more")
    assert await has("2")
    await free(pool, [node])
    await clean_up(api, node)


async def test_a_contributed_node_is_taken_back(api: Api, tenancy: LocalCluster, people: People, name: str) -> None:
    """E19: the cluster forgets it; with its certificate it registers no more, and gets no other certificate."""
    await api.make_tenant(name)
    node, token = await offer(tenancy, name)
    itself = await people.node(node)
    # A taint of the test's own: no other pods are scheduled here.
    spec = {"taints": [{"key": "test", "effect": "NoSchedule"}]}
    await api.create(Node.resource, {"metadata": {"name": node}, "spec": spec})
    await command(tenancy, "take-back", node)
    assert await api.find(Node.resource, node) is None
    register = await api.get(PolicyParameters.resource, contribution.REGISTER, marks.SYSTEM_NAMESPACE)
    assert contribution.key_of(node) not in register["metadata"].get("annotations", {})
    await is_known(token, tenancy, holds=False)
    with pytest.raises(Unauthorized):
        await ask(token, tenancy, f"{name}-again", node)
    with pytest.raises(Forbidden, match="has no current record"):
        await itself.create(Node.resource, {"metadata": {"name": node}, "spec": spec})
    user = f"system:node:{node}"
    asked = signing_request(CLIENT, user, user).spec
    renewal = {"request": asked.request, "signerName": CLIENT, "usages": ["digital signature", "client auth"]}
    with pytest.raises(Forbidden, match="has no current record"):
        await itself.create(SigningRequest.resource, {"metadata": {"name": f"{name}-renewed"}, "spec": renewal})
