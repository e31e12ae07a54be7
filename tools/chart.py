"""The Helm chart in deploy/chart/, from the objects of `tenantry install`; `tools/generate.py` writes it.

    manifests.foundation ─► crds.yaml, namespaces.yaml, rights.yaml, policies.yaml   as they are, `{{` escaped;
                                                                      some differ by the version of Kubernetes
    manifests.workload   ─► operator.yaml                                            values instead of some fields
    observability        ─► monitoring.yaml
    TenancyDefaults      ─► values.schema.json, below `defaults`

A text `=path` in an object becomes a template that writes the value at that path. A key `?path` becomes a field that is
there if the value is not empty. With the values of the chart, the rendered objects are those of
`tenantry install --dry-run`, but for `OMITTED`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenantry import __version__
from tenantry.api import marks
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.cli import output
from tenantry.controllers.installation.release import KEEP, RELEASE_NAME, RELEASE_NAMESPACE
from tenantry.controllers.operator import METRICS_TENANTS
from tenantry.install import manifests, observability
from tenantry.install.fallback import MutationForm
from tenantry.install.repairs import REPAIRS
from tenantry.kube.version import OLDEST

Json = dict[str, Any]

FOLDER = Path("deploy/chart")
HEAD = "# Made by tools/generate.py from the code; do not edit.\n"

OMITTED = manifests.OF_OPERATOR
"""Helm would write its marks over those of the operator."""

_VALUE = re.compile(r"^(?P<indent>[ -]*)(?P<key>[^:\n]+: |)'?=(?P<path>[A-Za-z.]+)'?$", re.MULTILINE)
_OPTION = re.compile(r"^(?P<indent> *)\?(?P<path>[A-Za-z.]+): null$", re.MULTILINE)
_BLOCKS = ("resources",)
"""Values that are maps."""


def files() -> dict[Path, str]:
    """Return the text of each file of the chart."""
    templates = {f"templates/{name}": text for name, text in _templates().items()}
    plain = {
        "Chart.yaml": HEAD + output.to_yaml([metadata(__version__)]),
        "values.yaml": VALUES,
        "values.schema.json": json.dumps(schema(), indent=2) + "\n",
    }
    return {FOLDER / name: text for name, text in (plain | templates).items()}


def semantic(version: str) -> str:
    """Return a version of PEP 440 as SemVer, which charts need: 0.2.0rc1 becomes 0.2.0-rc.1."""
    return re.sub(r"(?<=\d)(a|b|rc)(\d+)$", r"-\1.\2", version)


def metadata(version: str) -> Json:
    """Return Chart.yaml."""
    oldest = ".".join(map(str, OLDEST))
    return {
        "apiVersion": "v2",
        "name": "tenantry",
        "description": "Kubernetes multitenancy: one Tenant API, isolation as a field",
        "type": "application",
        "version": semantic(version),
        "appVersion": version,
        # The suffix admits the versions of distributions, as in v1.36.1-gke.1.
        "kubeVersion": f">={oldest}.0-0",
        "home": "https://tenantry.dev",
        "keywords": ["multitenancy", "tenants", "quota", "policy"],
        "annotations": {"artifacthub.io/operator": "true", "artifacthub.io/license": "Apache-2.0"},
    }


# -- templates ------------------------------------------------------------------------------------


def _templates() -> dict[str, str]:
    forms = {form: _foundation(form) for form in MutationForm}
    names = dict.fromkeys(_file_of(each) for each in forms[MutationForm.POLICIES])
    groups = {
        name: {form: [each for each in forms[form] if _file_of(each) == name] for form in forms} for name in names
    }
    return {
        "_mutations.tpl": _FORM,
        **{name: HEAD + _either(found, static) for name, found in groups.items()},
        "operator.yaml": HEAD + _operator(),
        "monitoring.yaml": HEAD + _monitoring(),
        "tenancydefaults.yaml": HEAD + _defaults(),
        "end-repairs.yaml": HEAD + _end_of_repairs(forms[MutationForm.POLICIES]),
        "NOTES.txt": NOTES,
    }


def _foundation(form: MutationForm) -> list[Json]:
    return [each for each in manifests.foundation(manifests.SERVICE_ACCOUNT, form) if key_of(each) not in OMITTED]


def _either(forms: Mapping[MutationForm, Sequence[Json]], write: Callable[[Sequence[Json]], str]) -> str:
    """Return a template of the objects of both forms; those that differ depend on the version of Kubernetes."""
    policies, webhook = forms[MutationForm.POLICIES], forms[MutationForm.WEBHOOK]
    common = [each for each in policies if each in webhook]
    first, second = ([each for each in found if each not in common] for found in (policies, webhook))
    text = write(common) if common else ""
    if not first and not second:
        return text
    return (
        f'{text}{{{{- if eq (include "tenantry.mutations" .) "{MutationForm.POLICIES}" }}}}\n'
        f"---\n{write(first)}{{{{- else }}}}\n---\n{write(second)}{{{{- end }}}}\n"
    )


def key_of(value: Mapping[str, Any]) -> tuple[str, str]:
    """Return an object's kind and name."""
    return value["kind"], value["metadata"]["name"]


def _file_of(value: Json) -> str:
    kind: str = value["kind"]
    if "AdmissionPolicy" in kind:
        return "policies.yaml"
    if kind in {"CustomResourceDefinition", "Namespace"}:
        return {"Namespace": "namespaces.yaml"}.get(kind, "crds.yaml")
    return "rights.yaml"


def static(values: Sequence[Json]) -> str:
    """Return objects as a template that renders exactly them."""
    return output.to_yaml(values).replace("{{", '{{ "{{" }}')


def template(values: Sequence[Json]) -> str:
    """Return objects as a template, with `=path` and `?path` replaced."""
    text = _OPTION.sub(_option, static(values))
    return _VALUE.sub(_value, text)


def _value(found: re.Match[str]) -> str:
    path = found["path"]
    if path not in _BLOCKS:
        return f"{found['indent']}{found['key']}{{{{ .Values.{path} }}}}"
    deep = len(found["indent"]) + 2
    return f"{found['indent']}{found['key'].rstrip()}\n{' ' * deep}{{{{- toYaml .Values.{path} | nindent {deep} }}}}"


def _option(found: re.Match[str]) -> str:
    indent, path = found["indent"], found["path"]
    field = path.rpartition(".")[2]
    return (
        f"{indent}{{{{- with .Values.{path} }}}}\n"
        f"{indent}{field}: {{{{- toYaml . | nindent {len(indent) + 2} }}}}\n"
        f"{indent}{{{{- end }}}}"
    )


def _operator() -> str:
    forms = {form: _workload(form) for form in MutationForm}
    budgets = [each for each in forms[MutationForm.POLICIES] if each["kind"] == "PodDisruptionBudget"]
    rest = {form: [each for each in found if each not in budgets] for form, found in forms.items()}
    # With one replica, a budget would keep its node from being drained.
    return (
        f"{_either(rest, _filled)}{{{{- if gt (int .Values.replicas) 1 }}}}\n---\n{template(budgets)}{{{{- end }}}}\n"
    )


def _workload(form: MutationForm) -> list[Json]:
    """Return the objects that run the operator, with values in them."""
    account, deployment, *others = manifests.workload("=image", None, form)
    deployment["spec"]["replicas"] = "=replicas"
    pod: Json = deployment["spec"]["template"]
    pod["metadata"] = {**pod["metadata"], "?podAnnotations": None}
    (container,) = pod["spec"]["containers"]
    container["resources"] = "=resources"
    container["args"] = [*container["args"], "?metrics.tenants"]
    pod["spec"] |= {"?imagePullSecrets": None, "?nodeSelector": None, "?tolerations": None, "?affinity": None}
    return [{**account, "?imagePullSecrets": None}, deployment, *others]


def _filled(values: Sequence[Json]) -> str:
    text = template(values)
    for before, after in (
        ("image: {{ .Values.image }}", f"image: {_IMAGE}\n{_PULL}"),
        ("podAnnotations: {{-", "annotations: {{-"),
        ("- ?metrics.tenants", _TENANTS),
    ):
        text = text.replace(before, after)
    return text


_IMAGE = (
    "{{ .Values.image.repository }}"
    "{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
)
_PULL = """\
        {{- with .Values.image.pullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}"""
_TENANTS = f"""\
{{{{- if ne (int .Values.metrics.tenants) {METRICS_TENANTS} }}}}
        - --metrics-tenants
        - {{{{ .Values.metrics.tenants | quote }}}}
        {{{{- end }}}}"""


def _monitoring() -> str:
    monitor, rule = observability.service_monitor(), observability.prometheus_rule()
    monitor["spec"]["endpoints"][0]["interval"] = "=metrics.serviceMonitor.interval"
    parts: list[str] = []
    for made, path in ((monitor, "metrics.serviceMonitor"), (rule, "metrics.prometheusRule")):
        made["metadata"]["labels"]["more"] = None
        more = f"    {{{{- with .Values.{path}.labels }}}}\n    {{{{- toYaml . | nindent 4 }}}}\n    {{{{- end }}}}"
        text = template([made]).replace("    more: null", more)
        parts.append(f"{{{{- if .Values.{path}.enabled }}}}\n---\n{text}{{{{- end }}}}\n")
    return "".join(parts)


def _defaults() -> str:
    kind = TenancyDefaults.resource
    return f"""\
{{{{- with .Values.defaults }}}}
{{{{- if $.Capabilities.APIVersions.Has "{kind.api_version}/{kind.kind}" }}}}
{{{{- $found := lookup "{kind.api_version}" "{kind.kind}" "" "{DEFAULTS}" }}}}
{{{{- $release := dig "metadata" "annotations" "{RELEASE_NAME}" "" $found }}}}
{{{{- if and $found (ne $release $.Release.Name) }}}}
{{{{- fail "TenancyDefaults {DEFAULTS!r} exists, and this release did not create it: leave the value `defaults` out, \
or delete that object first" }}}}
{{{{- end }}}}
{{{{- end }}}}
apiVersion: {kind.api_version}
kind: {kind.kind}
metadata:
  name: {DEFAULTS}
  labels:
    {marks.MANAGED_BY}: {{{{ $.Release.Service }}}}
  annotations:
    {RELEASE_NAME}: {{{{ $.Release.Name }}}}
    {RELEASE_NAMESPACE}: {{{{ $.Release.Namespace }}}}
    {"".join(f"{key}: {value}" for key, value in KEEP.items())}
    {{{{- if $.Release.IsInstall }}}}
    # Its kind does not exist before. An upgrade then has it as any other object.
    helm.sh/hook: post-install
    helm.sh/hook-delete-policy: hook-failed
    {{{{- end }}}}
spec: {{{{- toYaml . | nindent 2 }}}}
{{{{- end }}}}
"""


def _end_of_repairs(objects: Sequence[Json]) -> str:
    """Return the binding without which the operator repairs nothing, as a hook that deletes it first of all."""
    (switch,) = [each for each in objects if key_of(each) == ("ClusterRoleBinding", REPAIRS)]
    hook = {"helm.sh/hook": "pre-delete", "helm.sh/hook-delete-policy": "hook-succeeded"}
    return static([{**switch, "metadata": {**switch["metadata"], "annotations": hook}}])


_FORM = f"""\
{{{{- /* The form of mutations: mutating policies are v1 since Kubernetes 1.36. */ -}}}}
{{{{- define "tenantry.mutations" -}}}}
{{{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}}}
{MutationForm.POLICIES}
{{{{- else -}}}}
{MutationForm.WEBHOOK}
{{{{- end -}}}}
{{{{- end -}}}}
"""


NOTES = """\
Tenantry {{ .Chart.AppVersion }} is installed. The next three commands:

1. Wait until the operator runs:

     kubectl --namespace tenantry-system rollout status deployment/tenantry-operator

2. Create a tenant with an owner:

     kubectl apply --filename - <<'END'
     apiVersion: tenantry.dev/v1alpha1
     kind: Tenant
     metadata: {name: acme}
     spec:
       owners: [{kind: User, name: ann}]
       quota: {hard: {requests.cpu: "4", requests.memory: 8Gi}}
     END

3. Wait until it is ready:

     kubectl wait --for=condition=Ready tenant/acme
"""


# -- values ---------------------------------------------------------------------------------------


VALUES = f"""\
{HEAD}
# Number of replicas of the operator. One of them leads, the others wait.
replicas: 2

image:
  repository: {manifests.DEFAULT_IMAGE.rpartition(":")[0]}
  # The default is the version of the chart.
  tag: ""
  # As in sha256:…; it replaces the tag.
  digest: ""
  # IfNotPresent, Always or Never; the default is that of Kubernetes.
  pullPolicy: ""

# Names of Secrets in tenantry-system, as in [{{name: registry}}].
imagePullSecrets: []

# Requests and limits of the operator: 2,000 tenants fit into these.
resources:
  requests:
    cpu: 100m
    memory: 128Mi
  limits:
    memory: 512Mi

# Where the operator's pods run, and their annotations.
nodeSelector: {{}}
tolerations: []
affinity: {{}}
podAnnotations: {{}}

metrics:
  # Number of tenants, the largest, that have series of their own; the others are summed.
  tenants: {METRICS_TENANTS}
  # Both need the kinds of the Prometheus operator.
  serviceMonitor:
    enabled: false
    interval: 30s
    labels: {{}}
  prometheusRule:
    enabled: false
    labels: {{}}

# The spec of TenancyDefaults, as in {{rules: {{standard: Restricted}}}}. The chart creates no object if it is empty.
defaults: {{}}
"""


def schema() -> Json:
    """Return values.schema.json: JSON Schema, draft 7."""
    text: Json = {"type": "string"}
    labels: Json = {"type": "object", "additionalProperties": text}
    switch: Json = {"enabled": {"type": "boolean"}, "labels": labels}
    quantities: Json = {
        "type": "object",
        "additionalProperties": {
            "type": ["string", "number"],
            "pattern": _QUANTITY,
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart of Tenantry",
        **_closed(
            {
                # Helm adds it to the values of every chart.
                "global": {"type": "object"},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 16},
                "image": _closed(
                    {
                        "repository": {"type": "string", "pattern": r"^[a-z0-9][a-zA-Z0-9._:/-]*$"},
                        "tag": {"type": "string", "pattern": r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
                        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                        "pullPolicy": {"enum": ["", "IfNotPresent", "Always", "Never"]},
                    }
                ),
                "imagePullSecrets": {
                    "type": "array",
                    "items": {**_closed({"name": {**text, "minLength": 1}}), "required": ["name"]},
                },
                "resources": _closed(
                    {
                        "requests": quantities,
                        "limits": quantities,
                        "claims": {"type": "array", "items": {"type": "object"}},
                    }
                ),
                "nodeSelector": labels,
                "tolerations": {"type": "array", "items": _closed(_TOLERATION)},
                "affinity": _closed(
                    {name: {"type": "object"} for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")}
                ),
                "podAnnotations": labels,
                "metrics": _closed(
                    {
                        "tenants": {"type": "integer", "minimum": 0, "maximum": 10_000},
                        "serviceMonitor": _closed({**switch, "interval": {**text, "pattern": "^[0-9]+(ms|s|m|h)$"}}),
                        "prometheusRule": _closed(switch),
                    }
                ),
                "defaults": _defaults_schema(),
            }
        ),
    }


_QUANTITY = r"^[0-9.]+([eE][+-]?[0-9]+|[numkKMGTPE]i?|)$"
_TOLERATION: Json = {
    "key": {"type": "string"},
    "operator": {"enum": ["Exists", "Equal"]},
    "value": {"type": "string"},
    "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
    "tolerationSeconds": {"type": "integer"},
}


def _closed(properties: Mapping[str, Json]) -> Json:
    """Return the schema of an object that has no other fields."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _defaults_schema() -> Json:
    (kind,) = [
        each for each in manifests.definitions() if each["spec"]["names"]["kind"] == TenancyDefaults.resource.kind
    ]
    whole: Json = kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    closed = _strict(whole["properties"]["spec"])
    # None at all is allowed: then the chart creates no object.
    return {key: value for key, value in closed.items() if key != "required"}


_KEYWORDS = (
    *("type", "enum", "items", "properties", "required", "pattern", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "additionalProperties"),
)


def _strict(part: Json) -> Json:
    """Return a structural schema as JSON Schema that refuses unknown fields.

    CEL and defaults are left out: the API server has them.
    """
    out: Json = {key: value for key, value in part.items() if key in _KEYWORDS}
    if part.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if "properties" in part:
        out["properties"] = {name: _strict(value) for name, value in part["properties"].items()}
        out["additionalProperties"] = False
    elif isinstance(part.get("additionalProperties"), dict):
        out["additionalProperties"] = _strict(part["additionalProperties"])
    if "items" in part:
        out["items"] = _strict(part["items"])
    return out
