"""Nodes that their owners bring: let in by a token, one node for each, and labelled with what was agreed on."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import sys

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tenantry.api import contribution, marks
from tenantry.api.errors import Forbidden, Unauthorized
from tenantry.api.node import Node
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.tenant import Tenant
from tenantry.controllers.contributions.signing import CLIENT, SigningRequest
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, Api, until
from testkit.certificates import request as signing_request
from testkit.contributions import clean_up, command, offer
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")


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


async def test_a_cluster_of_simulated_nodes_takes_no_contributed_node(tenancy: LocalCluster) -> None:
    """E19: its API server listens to no node, so a token would be worth nothing."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "node", "contribute", f"--cluster={tenancy.name}"),
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
