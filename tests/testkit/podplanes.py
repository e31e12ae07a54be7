"""Virtual control planes in Pods of a cluster with real nodes, on which Tenantry is installed as on any other."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, PROCESS_NAMESPACE, VirtualControlPlane
from tenantry.hostedpods import image, objects, seenpods, versionimages
from tenantry.install import planeproxy
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from testkit import operatorimage
from testkit.api import PODS, SECRETS, Api, until
from testkit.kubectl import Kubectl
from testkit.metricsadapter import API_SERVICES, NAME, ROOT, SERVICE
from testkit.planes import Planes, ready, vcp
from testkit.realpods import AGNHOST, CAREFUL, START_SECONDS

Json = dict[str, Any]
(EARLIER,) = versionimages.OTHERS
EARLIER_IMAGE = f"{image.REFERENCE}-{EARLIER.name}"


def images_in(folder: Path, *, has_earlier: bool) -> dict[str, Path]:
    """Write the images of the operator and of control planes, and return their files by their references.

    Args:
        folder: Where they are written.
        has_earlier: Whether control planes of the earlier version have an image, too.
    """
    written = {image.REFERENCE: folder / "hosted.tar", operatorimage.REFERENCE: folder / "operator.tar"}
    image.write(SilentProgress(), image.REFERENCE, written[image.REFERENCE])
    if has_earlier:
        written[EARLIER_IMAGE] = folder / "earlier.tar"
        image.write(SilentProgress(), EARLIER_IMAGE, written[EARLIER_IMAGE], EARLIER.name)
    operatorimage.write(written[operatorimage.REFERENCE])
    return written


def installed(path: Path, earlier: str) -> None:
    """Install Tenantry with its command, which does not know that the cluster is a local one."""
    command = (
        *(sys.executable, "-m", "tenantry", "install", "--kubeconfig", str(path)),
        *("--image", operatorimage.REFERENCE, "--virtual-control-planes", "--hosted-image", image.REFERENCE),
        *("--hosted-shards", "2", "--hosted-etcd"),
        *(("--hosted-image", f"{EARLIER.name}={earlier}") if earlier else ()),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


async def the_pod(host: Api, uid: str) -> Json:
    """Return the Pod of a control plane."""
    (own,) = await the_pods(host, uid)
    return own


async def the_pods(host: Api, uid: str) -> list[Json]:
    """Return the Pods of a control plane: none between the end of one and the start of the next."""
    found = await host.list(PODS, PROCESS_NAMESPACE)
    return [each for each in found if each["metadata"]["labels"].get(objects.UID_LABEL) == uid]


async def kubeconfig_of(planes: Planes, namespace: str, uid: str) -> Path:
    """Return the kubeconfig of the users, for this machine: it has no way to addresses of Services."""
    host = planes.host
    secret = await host.get(SECRETS, "web-kubeconfig", namespace)
    found = yaml.safe_load(base64.b64decode(secret["data"][KUBECONFIG_KEY]))
    service = await host.get(objects.SERVICES, objects.name(uid), PROCESS_NAMESPACE)
    cluster = found["clusters"][0]["cluster"]
    assert cluster["server"] == f"https://{service['spec']['clusterIP']}"
    address, port = (await the_proxy(host))["status"]["podIP"], service["spec"]["ports"][0]["targetPort"]
    cluster |= {"server": f"https://{address}:{port}", "tls-server-name": "kubernetes"}
    path = planes.kubeconfig(namespace, "web")
    path.write_text(yaml.safe_dump(found))
    return path


async def the_proxy(host: Api) -> Json:
    """Return the Pod of the endpoint proxy."""
    found = await host.list(PODS, PROCESS_NAMESPACE)
    (own,) = [each for each in found if planeproxy.SELECTOR.items() <= each["metadata"]["labels"].items()]
    return own


def deployment() -> Json:
    """Return a Deployment whose pods the rules of a tenant accept."""
    container = {"name": "web", "image": AGNHOST, "args": ["netexec", "--http-port=8080"], "securityContext": CAREFUL}
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        },
    }


async def run_deployment(planes: Planes, kubectl: Kubectl, namespace: str) -> None:
    """Apply `deployment` inside, and wait until its pod is ready."""
    file = planes.kubeconfig(namespace, "deployment")
    file.write_text(yaml.safe_dump(deployment()))
    await kubectl.out("apply", "-f", str(file))
    await kubectl.out("rollout", "status", "deployment/web", f"--timeout={START_SECONDS:.0f}s")


async def is_ready(host: Api, namespace: str) -> None:
    """Wait until the control plane of a namespace is ready."""
    seen: Json = {}

    async def so() -> bool:
        seen.update(await host.get(VirtualControlPlane.resource, "web", namespace))
        return ready(seen).get("status") == "True"

    await until(so, "the control plane is ready", seconds=START_SECONDS, seen=lambda: ready(seen))


async def has_audit_log(cluster: LocalCluster, namespace: str) -> None:
    """Wait until the audit log of the control plane "web" has the creation of a Deployment."""

    async def so() -> bool:
        code, out, told = await vcp(cluster, "audit-log", "web", "-n", namespace)
        assert code == 0, told
        events = [json.loads(each) for each in out.splitlines()]
        return "deployments" in [
            each.get("objectRef", {}).get("resource") for each in events if each["verb"] == "create"
        ]

    await until(so, "the audit log has the Deployment", seconds=START_SECONDS)


async def are_asked_for(host: Api, kubectl: Kubectl) -> None:
    """Read metrics, which the operator answers through the sidecar: those of the host do not answer."""
    spec: Json = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"service": {**SERVICE, "port": 443}, "insecureSkipTLSVerify": True}
    await host.create(API_SERVICES, {"metadata": {"name": NAME}, "spec": spec})
    seen: list[str] = []

    async def so() -> bool:
        seen[:] = [(await kubectl.run("get", "--raw", f"{ROOT}/namespaces/default/pods")).stderr]
        return "ask its administrators about its metrics-server" in seen[0]

    await until(so, "the operator answers", seconds=START_SECONDS, seen=lambda: seen)
    await host.delete(API_SERVICES, NAME)


async def is_rotated(planes: Planes, namespace: str, uid: str) -> Kubectl:
    """Replace all credentials: the former kubeconfig is worth nothing, and the new one works."""
    host, before = planes.host, await the_pod(planes.host, uid)
    former = yaml.safe_load((await kubeconfig_of(planes, namespace, uid)).read_text())["users"]
    asked: Json = {"spec": {"rotation": {"request": "All@1"}}}
    await host.patch(VirtualControlPlane.resource, "web", asked, namespace)
    seen: Json = {}

    async def done() -> bool:
        seen.update((await host.get(VirtualControlPlane.resource, "web", namespace))["status"])
        return seen.get("lastRotation", {}).get("requested") == "All@1"

    await until(done, "the credentials are replaced", seconds=START_SECONDS, seen=lambda: seen)
    assert (await the_pod(host, uid))["metadata"]["uid"] != before["metadata"]["uid"]
    path = await kubeconfig_of(planes, namespace, uid)
    old = planes.kubeconfig(namespace, "former")
    old.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"users": former}))
    refused = await Kubectl(old).run("get", "deployments")
    assert refused.returncode != 0
    assert "Unauthorized" in refused.stderr or "must be logged in" in refused.stderr, refused.stderr
    return Kubectl(path)


async def asked(planes: Planes, namespace: str, field: str, value: str, **spec: str) -> Json:
    """Request a snapshot or a restore, and return its outcome once the control plane is ready again."""
    host, status = planes.host, {"request": "lastSnapshot", "restore": "lastRestore"}[field]
    wanted = {"snapshots": {field: value}, **spec}
    await host.patch(VirtualControlPlane.resource, "web", {"spec": wanted}, namespace)
    seen: Json = {}

    async def answered() -> bool:
        seen.update((await host.get(VirtualControlPlane.resource, "web", namespace))["status"])
        return seen.get(status, {}).get("requested") == value

    await until(answered, f"{field} is answered", seconds=START_SECONDS, seen=lambda: seen)
    await is_ready(host, namespace)
    found: Json = seen[status]
    assert not found.get("message"), found
    return found


async def entered(planes: Planes, namespace: str) -> Kubectl:
    """Return kubectl of the users of a control plane, whose Pod may be another one."""
    uid = (await planes.host.get(VirtualControlPlane.resource, "web", namespace))["metadata"]["uid"]

    async def runs() -> bool:
        pods = await planes.host.list(PODS, PROCESS_NAMESPACE)
        own = [each for each in pods if each["metadata"]["labels"].get(objects.UID_LABEL) == uid]
        return len(own) == 1 and seenpods.seen(own[0]).is_ready

    await until(runs, "its Pod is ready", seconds=START_SECONDS)
    return Kubectl(await kubeconfig_of(planes, namespace, uid))


async def names(kubectl: Kubectl) -> set[str]:
    """Return the names of the ConfigMaps of the tests."""
    found = (await kubectl.out("get", "configmaps", "-o", "name")).split()
    return {each.partition("/")[2] for each in found} - {"kube-root-ca.crt"}
