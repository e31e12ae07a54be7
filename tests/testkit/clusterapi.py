"""The operator of Cluster API as a Helm chart: twelve kinds, their conversion, and webhooks for each of them.

    its module's manifests ─► kubectl kustomize ─► objects ─► chart ─► helm install

The chart makes the certificates of the webhooks itself, as charts do that need no other operator.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tenantry.local import build
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images
from tenantry.local.real.images import ImageRecipe
from testkit import modules

Json = dict[str, Any]
IMAGE = "tenantry.local/clusterapi:1"
NAMESPACE = "capi-system"
DEPLOYMENT = "capi-controller-manager"
_MODULE = "sigs.k8s.io/cluster-api"
_AUTHORITY = "@authority@"
_DEFAULT = re.compile(r"\$\{\w+:=([^}]*)\}")
_MADE_BY_THE_CHART = ("Namespace", "Certificate", "Issuer")

_TEMPLATE = """\
{{- $authority := genCA "cluster-api" 7 }}
{{- $name := "capi-webhook-service.capi-system.svc" }}
{{- $leaf := genSignedCert $name nil (list $name) 7 $authority }}
apiVersion: v1
kind: Secret
metadata:
  name: capi-webhook-service-cert
  namespace: capi-system
type: kubernetes.io/tls
data:
  tls.crt: {{ $leaf.Cert | b64enc }}
  tls.key: {{ $leaf.Key | b64enc }}
{{- range $path, $_ := .Files.Glob "objects/*.json" }}
---
{{ $.Files.Get $path | replace "@authority@" ($authority.Cert | b64enc) }}
{{- end }}
"""


def write_image(target: Path) -> None:
    """Write the image of the operator."""
    program = build.ensure(SilentProgress(), build.CLUSTER_API).cluster_api
    recipe = ImageRecipe(reference=IMAGE, files={"/manager": program}, entrypoint=("/manager",), user="65532:65532")
    images.write(recipe, target)


def write_chart(folder: Path) -> None:
    """Write the chart into a folder that is empty or does not exist."""
    (folder / "templates").mkdir(parents=True)
    (folder / "objects").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: cluster-api\nversion: 1.0.0\n")
    (folder / "values.yaml").write_text("{}\n")
    (folder / "templates" / "all.yaml").write_text(_TEMPLATE)
    for number, value in enumerate(_objects()):
        (folder / "objects" / f"{number:02}.json").write_bytes(msgspec.json.encode(value))


def _objects() -> Iterator[Json]:
    for value in yaml.safe_load_all(manifests("core")):
        if value["kind"] in _MADE_BY_THE_CHART:
            continue
        for client in _clients(value):
            client["caBundle"] = _AUTHORITY
        if value["kind"] == "Deployment":
            # What a user writes into the values of a chart: the rules for pods refuse to tolerate control planes.
            value["spec"]["template"]["spec"].pop("tolerations")
            (container,) = value["spec"]["template"]["spec"]["containers"]
            container |= {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}
        yield value


def _clients(value: Json) -> Iterator[Json]:
    """Yield where the API server finds the operator: its webhooks, and the conversion of a kind."""
    if value["kind"] == "CustomResourceDefinition":
        yield value["spec"]["conversion"]["webhook"]["clientConfig"]
    for webhook in value.get("webhooks", ()):
        yield webhook["clientConfig"]


def manifests(part: str) -> str:
    """Return what users of a manager apply, with the defaults of its variables.

    Args:
        part: Its folder in the module, as in "core" and "bootstrap/kubeadm".
    """
    kubectl = build.ensure(SilentProgress()).kubectl
    place = modules.folder("clusterapi", _MODULE) / part / "config" / "default"
    done = subprocess.run(
        [str(kubectl), "kustomize", str(place)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return _DEFAULT.sub(r"\1", done.stdout)
