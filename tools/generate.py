"""Writes what is made from the code: deploy/ and docs/reference/. `--check` only fails where something is stale."""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from tenantry.api import marks
from tenantry.api.kinds import KINDS
from tenantry.api.model import KubernetesObject
from tenantry.api.rulefields import RuleField, fields
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import Area
from tenantry.audit.verdict import WEIGHTS
from tenantry.cli import output
from tenantry.cli.main import VERBS, load, tenantry
from tenantry.install import manifests
from tenantry.policy.catalog import CHECKS as RULE_CHECKS
from tenantry.policy.catalog import TARGETS, findings
from tenantry.policy.check import Check
from tenantry.policy.request import Request

ROOT = Path(__file__).resolve().parent.parent
REASONS = ROOT / "src" / "tenantry" / "api" / "reasons.py"
WIDTH = 100
SHOWN_LINES = 20

Schema = dict[str, Any]

YAML_HEAD = "# Made by tools/generate.py from the code; do not edit.\n"
MARKDOWN_HEAD = "<!-- Made by tools/generate.py from the code; do not edit. -->\n\n"

MEANINGS = {
    "Ready": "Everything that the spec asks for is in place.",
    "Reconciling": "There only while true: something is on its way, or failed in a way that passes by itself.",
    "Stalled": "There only while true: nothing changes until a person changes something; the message says what.",
    "Suspended": "There only while true, or on the way: nobody but administrators gets in, and nothing new is made.",
    "ClusterNetworkPolicyInForce": "There where the spec asks for it: a ClusterNetworkPolicy keeps other tenants away.",
    "EgressNarrowed": "There only while true: pods of a Baseline tenant do not reach some addresses beside the nodes'.",
    "TenantsMissing": "There only while true: tenants that TenancyDefaults name are not there.",
    "TenantNotFound": "A tenant that has a level of its own in `spec.fairness.reserved` is not there.",
    "HostsTaken": "There only while true: something in the namespace has a host that another tenant had first.",
    "HostTaken": "An Ingress, Gateway or route has a host that another tenant, or the cluster itself, had first.",
    "Sandboxed": "There where `spec.isolation.runtime` is not Shared: whether new pods run in a sandbox.",
    "Established": "Namespace, rights, limits and isolation are in place.",
    "Progressing": "On the way.",
    "NamespaceTerminating": "The tenant's namespace is being deleted; when it is gone, it is made anew.",
    "ApiError": "The API server failed or refused for the moment; it is tried again.",
    "NamespaceExists": "A namespace of the tenant's name is somebody else's: choose another name, or make room.",
    "ObjectExists": "An object of a name that the tenant needs is somebody else's: delete or rename it.",
    "InvalidSpec": "The spec, or an annotation that the message names, is wrong in a way that no schema catches.",
    "Refused": "The API server does not let the operator do it: its rights, a policy or a quota.",
    "Expiring": "There only while true: the end of a lease is near, or past.",
    "Approved": "There only while true: somebody who may has approved the request.",
    "Denied": "There only while true: somebody who may has denied the request.",
    "AwaitingDecision": "Nobody has decided the request yet.",
    "Decided": "A person has decided; `status.decidedBy` says who, `status.reason` why.",
    "DecidedAutomatically": "A rule of `TenancyDefaults.spec.autoApprove` has approved the request.",
    "Granted": "What was asked for is given.",
    "RoleNotFound": "The role that is asked for is not there; once it is, an approved request is granted.",
    "TenantExists": "A tenant of the name that is asked for is there already.",
    "TenantSuspended": "The tenant is suspended; the grant is there again when that ends.",
    "Inherited": "There where something is inherited: whether all of it is in place.",
    "NotATenantsNamespace": "A Subnamespace is in a namespace that is no tenant's: make it in a tenant's.",
    "QuotaInsufficient": "The parent cannot give the quota that is asked for; the message says how much of which key.",
    "QuotaKeyNotLimited": "The quota names a key that the tenant's quota does not have.",
    "QuotaShort": "The quota is less than what the subnamespaces inside hold; the message says by how much.",
    "QuotaExceeded": "More is in use than the quota allows now: nothing is killed, new use is refused.",
    "LimitReached": "The tenant's `spec.namespaces` does not allow another one, or not this deep.",
    "NotAllowed": "The tenant's `spec.namespaces` does not allow this name, label or annotation.",
    "ChildrenExist": "It is not deleted while Subnamespaces are inside: delete them, or allow cascading deletion.",
    "KindNotInheritable": "A kind that no administrator has allowed to be inherited, or that the cluster lacks.",
    "InheritanceClash": "An object of an inherited object's name is somebody else's; it is left as it is.",
    "CannotAdopt": "The namespace that `spec.adopt` names cannot become the child; the message says why.",
    "ExpiresSoon": "The lease ends within a day.",
    "Expired": "The lease has ended.",
    "SuspendedBySpec": "`spec.suspended` is true, and everybody's rights are taken away.",
    "Suspending": "`spec.suspended` is true, and not everybody's rights are taken away yet.",
    "Resuming": "`spec.suspended` is false, and not everybody has their rights back yet.",
    "InForce": "The ClusterNetworkPolicy is in place.",
    "RuntimeClassInForce": "New pods run in the RuntimeClass that the message names.",
    "NoRuntimeClass": "The spec asks for a sandbox, and the cluster has no RuntimeClass of one, or not the one named.",
    "KernelShared": "The spec does not say, and the cluster has no sandbox: pods share the kernel of their node.",
    "TooManyAddresses": "Nodes have more addresses than a policy holds: name their subnets in TenancyDefaults.",
    "KindNotInstalled": "The cluster does not have the kind ClusterNetworkPolicy: install network-policy-api v0.2.",
    "Created": "Something was made.",
    "Corrected": "What somebody changed or deleted by hand was put back.",
    "Pending": "There only while true: no nodes are set aside for the claim; its reason says why.",
    "Reserved": "There only while true: the nodes are set aside, and no new pods of others come.",
    "Draining": "There only while true: somebody uses the claim, and pods of others are leaving its nodes.",
    "Bound": "There only while true: the nodes are the tenant's alone.",
    "Releasing": "There only while true: the tenant's pods are leaving, and the nodes are given back then.",
    "Degraded": "There only while true: nodes of a slice are gone or not ready; the message names them.",
    "AwaitingAdministrator": "The claim is Manual: an administrator makes its Slice, as with `tenantry slice approve`.",
    "NodesInsufficient": "Too few nodes are free that fit; the message says what would fit, `explain slice` why.",
    "NodesReserved": "The nodes are set aside until a namespace uses the claim.",
    "PodsLeaving": "Pods are asked to leave as their disruption budgets allow, and deleted after the grace period.",
    "NodesBound": "Nobody but the tenant has pods on the nodes, DaemonSets and static pods apart.",
    "ClaimEnded": "The claim was deleted.",
    "Cleaning": "What the tenant left on the nodes is being removed.",
    "Cleaned": "Nothing of the last tenant is left on the node.",
    "NodesNotClean": "Something of the last tenant is left on a node, which stays set aside; the message names it.",
    "NodesLost": "A node of the slice is gone or not ready.",
    "Resumed": "A suspension ended.",
}
"""What each condition and reason means to a person; one that is missing here fails the generation."""

EXIT_CODES = """\
| code | meaning |
|---|---|
| 0 | done; of `diff`: nothing would change |
| 1 | not done, as the message says: time was up, a person said no; `diff`: a change; `audit`: a failure |
| 2 | wrong input: a flag, a file, a field |
| 3 | no cluster can be reached with these credentials, it is too old, or Tenantry is not installed there |
| 4 | a local cluster, its build or its files |
| 5 | the API server refuses, or does not answer; of `audit`: something could not be told |
| 130 | interrupted |
| 141 | whoever read the output went away |
"""


def files() -> dict[Path, str]:
    """Return the text of each generated file."""
    found = {
        Path("deploy/crds") / f"{value['metadata']['name']}.yaml": YAML_HEAD + output.to_yaml([value])
        for value in manifests.definitions()
    }
    found[Path("deploy/install.yaml")] = YAML_HEAD + output.to_yaml(manifests.everything())
    for kind in KINDS:
        found[Path("docs/reference") / f"{kind.resource.kind.lower()}.md"] = MARKDOWN_HEAD + kind_page(kind)
    found[Path("docs/reference/rules.md")] = MARKDOWN_HEAD + rules_page()
    found[Path("docs/reference/reasons.md")] = MARKDOWN_HEAD + reasons_page()
    found[Path("docs/reference/checks.md")] = MARKDOWN_HEAD + checks_page()
    found[Path("docs/reference/cli.md")] = MARKDOWN_HEAD + cli_page()
    return found


# -- kinds ----------------------------------------------------------------------------------------


def kind_page(kind: type[KubernetesObject]) -> str:
    """Return the reference of a kind: every field with its type, default and rules."""
    definition = next(
        value for value in manifests.definitions() if value["spec"]["names"]["kind"] == kind.resource.kind
    )
    names, version = definition["spec"]["names"], definition["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    scope = "in a namespace" if kind.resource.namespaced else "cluster-scoped"
    short = ", ".join(f"`{name}`" for name in names["shortNames"])
    lines = [
        f"# {names['kind']}",
        "",
        schema.get("description", ""),
        "",
        f"`{kind.resource.api_version}`, {scope}; `kubectl get {names['plural']}` (short: {short}).",
        "",
        *_rules(schema),
        "## Fields",
        "",
        "| field | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for part in (each for each in ("spec", "status") if each in schema["properties"]):
        lines += _rows(part, schema["properties"][part], required=part == "spec")
    lines += ["", "## Columns", "", "| column | shows | with `-o wide` only |", "|---|---|---|"]
    for column in version["additionalPrinterColumns"]:
        wide = "yes" if column.get("priority") else ""
        lines.append(f"| {column['name']} | `{column['jsonPath']}` | {wide} |")
    return "\n".join(lines) + "\n"


def _rows(path: str, schema: Schema, *, required: bool) -> list[str]:
    default = "required" if required else _default(schema)
    text = " ".join([schema.get("description", ""), *_bounds(schema)]).strip()
    meaning = "<br>".join([text, *_messages(schema)])
    rows = [f"| `{path}` | {_type(schema)} | {default} | {meaning} |".replace("|  |", "| |")]
    if path == "spec.rules":
        return [row.removesuffix(" |") + "<br>See [Rules](rules.md). |" for row in rows]
    inner: Schema = schema.get("items", schema)
    needed: list[str] = inner.get("required", [])
    below = f"{path}[]" if "items" in schema else path
    if "items" in schema and inner.get("x-kubernetes-validations"):
        rows += [f"| `{below}` | {_type(inner)} | | {rule} |" for rule in _messages(inner)]
    for name, field in inner.get("properties", {}).items():
        rows += _rows(f"{below}.{name}", field, required=name in needed)
    values: Schema = schema.get("additionalProperties", {})
    if values:
        rows.append(f"| `{path}.*` | {_type(values)} | | {' '.join(_messages(values))} |")
    return rows


def _default(schema: Schema) -> str:
    default: object = schema.get("default", {})
    return "" if default == {} else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _messages(schema: Schema) -> list[str]:
    given: list[Schema] = schema.get("x-kubernetes-validations", [])
    return [f"{rule['fieldPath'].lstrip('.') + ' ' if 'fieldPath' in rule else ''}{rule['message']}" for rule in given]


def _rules(schema: Schema) -> list[str]:
    messages = _messages(schema)
    return ["## Rules", "", *(f"- {message}" for message in messages), ""] if messages else []


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "number or string"
    kind: str = schema.get("type", "")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object" and "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return kind


def _bounds(schema: Schema) -> list[str]:
    words = {
        "minItems": "At least {} items.",
        "maxItems": "At most {} items.",
        "maxProperties": "At most {} keys.",
        "minLength": "Not empty.",
        "maxLength": "At most {} characters.",
    }
    return [text.format(schema[name]).replace(" 1 items", " 1 item") for name, text in words.items() if name in schema]


# -- rules ----------------------------------------------------------------------------------------


RULES_HEAD = """\
# Rules

The fields of `spec.rules` in [TenancyDefaults](tenancydefaults.md), [Tenant](tenant.md) and
[Subnamespace](subnamespace.md). How the levels are merged is in [Rules](../concepts/rules.md). Each family has an
`action`, too: `Enforce` refuses (the default), `Warn` accepts with a warning, `Audit` writes to the audit log.

*Standard* is the value while no administrator sets the rule; for `podSecurity` it depends on the level. *Refuses*
quotes what the API server says about an example, and what would pass. *Fix* says whether
`tenantry explain denied --fix` changes the manifest.
"""


def rules_page() -> str:
    """Return the reference of all rules: each with its standard, what it refuses and what would pass."""
    (tenants,) = [each for each in manifests.definitions() if each["spec"]["names"]["kind"] == "Tenant"]
    schema: Schema = tenants["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    families: Schema = schema["properties"]["spec"]["properties"]["rules"]["properties"]
    declared = {field.path: field for field in fields()}
    lines = [RULES_HEAD.rstrip()]
    for family, inner in families.items():
        lines += ["", f"## {family}", "", inner["description"], ""]
        lines += ["| rule | value | meaning | standard | refuses | fix |", "|---|---|---|---|---|---|"]
        notes: dict[str, None] = {}
        for name, field in inner["properties"].items():
            path = f"{family}.{name}"
            if path not in declared:
                continue  # the action
            checks = [check for check in RULE_CHECKS if check.rule in _paths_of(path)]
            meaning = "<br>".join([" ".join([field["description"], *_bounds(field)]), *_messages(field)])
            cells = (f"`{path}`", _type(field), meaning, _standard(declared[path]), _refuses(checks), _mends(checks))
            lines.append(f"| {' | '.join(cells)} |")
            notes |= {f"- `{path}`: {check.note}": None for check in checks if check.note}
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def _paths_of(path: str) -> tuple[str, ...]:
    seccomp = ("podSecurity.seccompUnconfined", "podSecurity.seccompUnset")
    return seccomp if path == "podSecurity.seccomp" else (path,)


def _standard(field: RuleField) -> str:
    if field.levels:
        return ", ".join(f"{level}: {_value(value)}" for level, value in field.levels.items())
    return _value(field.standard) if field.standard is not None else ""


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in cast("tuple[object, ...]", value))
    return f"`{value}`"


def _refuses(checks: Sequence[Check]) -> str:
    said: dict[str, None] = {}
    for check in checks:
        target = next(each for each in TARGETS if each.name == check.scope.target)
        request = Request(
            group=target.group,
            resource=target.resources[0],
            namespace_labels={marks.RUNTIME: marks.RUNTIME_SANDBOXED, marks.TENANT: "acme"},
            object=check.scope.sample(check.example),
        )
        found = [each for each in findings(request, check.section("")) if each.check is check]
        said |= {f"{each.path} {each.what}: {each.fix}": None for each in found[:1]}
    return "<br>".join(said)


def _mends(checks: Sequence[Check]) -> str:
    return "yes" if any(check.mend is not None for check in checks) else ""


# -- reasons --------------------------------------------------------------------------------------


def reasons_page() -> str:
    """Return the table of conditions, reasons and events, in the groups of api/reasons.py."""
    lines = [
        "# Conditions, reasons and events",
        "",
        "They are part of the API: none changes its name within a version.",
    ]
    source = REASONS.read_text()
    comments = [(number, line.lstrip("# ")) for number, line in enumerate(source.splitlines(), 1) if line[:1] == "#"]
    constants = [(number, value) for number, value in _constants(source)]
    for index, (number, title) in enumerate(comments):
        end = comments[index + 1][0] if index + 1 < len(comments) else sys.maxsize
        rows = [f"| `{value}` | {_meaning(value)} |" for line, value in constants if number < line < end]
        lines += ["", f"## {title}", "", "| name | meaning |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _constants(source: str) -> list[tuple[int, str]]:
    return [
        (node.lineno, node.value.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def _meaning(value: str) -> str:
    if value not in MEANINGS:
        raise SystemExit(f"tools/generate.py: say in MEANINGS what {value!r} means")
    return MEANINGS[value]


# -- checks ---------------------------------------------------------------------------------------


def checks_page() -> str:
    """Return the list of what `tenantry audit` tries, by area."""
    weights = ", ".join(f"{severity} {weight}" for severity, weight in WEIGHTS.items())
    lines = [
        "# Checks of `tenantry audit`",
        "",
        f"The score is what passed in percent of all that was decided, by weight: {weights}.",
        "*Kubernetes alone* is what comes of the check in a namespace that Tenantry does not manage, for a user who is",
        "bound to the role `admin` there. *kubectl-mtb* names the check of that retired tool which this one covers.",
    ]
    headers = ["| check | severity | Kubernetes alone | kubectl-mtb |", "|---|---|---|---|"]
    for area in Area:
        found = [check for check in CHECKS if check.area is area]
        lines += ["", f"## {area.capitalize()}", "", *headers]
        for check in found:
            name = f"[{check.id}](#{check.id.lower()}) {check.title}"
            lines.append(f"| {name} | {check.severity} | {check.alone} | {check.benchmark} |".replace("|  |", "| |"))
        for check in found:
            about = f"**{check.title}.** {check.tries} {check.proves}"
            lines += ["", f"### {check.id}", "", about, "", f"*To mend:* {check.fix}"]
    return "\n".join(lines) + "\n"


# -- commands -------------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the help of every command."""
    lines = ["# The `tenantry` command", "", "## Exit codes", "", EXIT_CODES]
    for verb in VERBS:
        lines += _help(load(verb), f"tenantry {verb}")
    return "\n".join(lines)


def _help(command: click.Command, path: str) -> list[str]:
    context = click.Context(command, info_name=path, terminal_width=WIDTH, max_content_width=WIDTH)
    context.help_option_names = list(tenantry.context_settings["help_option_names"])
    lines = [f"## `{path}`", "", "```text", command.get_help(context).rstrip(), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                lines += _help(inner, f"{path} {name}")
    return lines


# -- writing --------------------------------------------------------------------------------------


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Return the files that are not as they should be, and those that were once made and should not be there."""
    found = [path for path, text in wanted.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    folders = {path.parent for path in wanted} - {Path("deploy")}
    surplus = [
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).glob("*")
        if path.relative_to(ROOT) not in wanted and path.read_text().startswith((YAML_HEAD, MARKDOWN_HEAD))
    ]
    return sorted([*found, *surplus])


def main() -> int:
    """Write the files; with --check, return 1 where one is stale."""
    wanted = files()
    if "--check" not in sys.argv[1:]:
        for path in stale(wanted):
            if path in wanted:
                (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
                (ROOT / path).write_text(wanted[path])
                print(f"wrote {path}")
            else:
                (ROOT / path).unlink()
                print(f"removed {path}")
        return 0
    for path in stale(wanted):
        is_there = (ROOT / path).exists()
        before = (ROOT / path).read_text().splitlines() if is_there else []
        lines = difflib.unified_diff(
            before, wanted.get(path, "").splitlines(), str(path), "as it should be", lineterm=""
        )
        print("\n".join(list(lines)[:SHOWN_LINES]))
    if stale(wanted):
        print("generated files are stale; run `.venv/bin/python tools/generate.py` and commit what it writes")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
