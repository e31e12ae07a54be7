"""Generate deploy/ and docs/reference/ from the code; with `--check`, only fail if a file is stale."""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import chart as helm_chart
import click
from msgspec import inspect

from tenantry.api import marks
from tenantry.api.kinds import KINDS
from tenantry.api.model import KubernetesObject
from tenantry.api.rulefields import RuleField, fields
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import Area
from tenantry.audit.verdict import WEIGHTS
from tenantry.cli import output
from tenantry.cli.main import VERBS, load, tenantry
from tenantry.install import clusterinventory, gitops, manifests, netpolagent
from tenantry.install import observability as monitoring
from tenantry.policy.catalog import CHECKS as RULE_CHECKS
from tenantry.policy.catalog import TARGETS, violations
from tenantry.policy.check import RuleCheck
from tenantry.policy.request import Request

ROOT = Path(__file__).resolve().parent.parent
CHARTS = ROOT / "tests" / "testkit" / "charts" / "reviewed.toml"
REASONS = ROOT / "src" / "tenantry" / "api" / "reasons.py"
WIDTH = 100
SHOWN_LINES = 20

Schema = dict[str, Any]

YAML_HEAD = "# Made by tools/generate.py from the code; do not edit.\n"
MARKDOWN_HEAD = "<!-- Made by tools/generate.py from the code; do not edit. -->\n\n"

EXIT_CODES = """\
| code | meaning |
|---|---|
| 0 | success; `diff`, `plan`: nothing would change |
| 1 | not done, as after a time-out, or after the answer no; `diff`, `plan`: a change; `audit`: a failed check |
| 2 | invalid input: a flag, a file, a field; `--yes` is missing where no terminal can be asked |
| 3 | no cluster is named or known, or one that is too old, without Tenantry, or with a newer one |
| 4 | an error of a local cluster, its build or its files |
| 5 | the API server refuses, or cannot be reached; `audit`: an undecided check |
| 130 | interrupted |
| 141 | the reader of the output has closed it |
"""


def files() -> dict[Path, str]:
    """Return the text of each generated file."""
    found = {
        Path("deploy/crds") / f"{value['metadata']['name']}.yaml": YAML_HEAD + output.to_yaml([value])
        for value in manifests.definitions()
    }
    found[Path("deploy/install.yaml")] = YAML_HEAD + output.to_yaml(manifests.everything())
    # Apart: `kubectl apply` would change the definitions of their own project in clusters that have them.
    found[Path("deploy/cluster-inventory.yaml")] = YAML_HEAD + output.to_yaml(clusterinventory.definitions())
    # Apart: a network plugin may enforce NetworkPolicies already.
    found[Path("deploy/netpol-agent.yaml")] = YAML_HEAD + output.to_yaml(netpolagent.everything())
    observability = Path("deploy/observability")
    for name, made in (
        ("servicemonitor", monitoring.service_monitor()),
        ("prometheusrule", monitoring.prometheus_rule()),
    ):
        found[observability / f"{name}.yaml"] = YAML_HEAD + output.to_yaml([made])
    for name, made in (("argocd-cm", gitops.argocd()), ("flux-kustomization", gitops.flux())):
        found[Path("deploy/gitops") / f"{name}.yaml"] = YAML_HEAD + output.to_yaml([made])
    found[observability / "dashboard.json"] = json.dumps(monitoring.dashboard(), indent=2) + "\n"
    found |= helm_chart.files()
    for kind in KINDS:
        found[Path("docs/reference") / f"{kind.resource.kind.lower()}.md"] = MARKDOWN_HEAD + kind_page(kind)
    found[Path("docs/reference/rules.md")] = MARKDOWN_HEAD + rules_page()
    found[Path("docs/reference/reasons.md")] = MARKDOWN_HEAD + reasons_page()
    found[Path("docs/reference/checks.md")] = MARKDOWN_HEAD + checks_page()
    found[Path("docs/reference/charts.md")] = MARKDOWN_HEAD + charts_page()
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
    numbers = dict(_numbers("", inspect.type_info(kind)))
    for part in (each for each in ("spec", "status") if each in schema["properties"]):
        lines += _rows(part, schema["properties"][part], numbers, required=part == "spec")
    lines += ["", "## Columns", "", "| column | shows | with `-o wide` only |", "|---|---|---|"]
    for column in version["additionalPrinterColumns"]:
        wide = "yes" if column.get("priority") else ""
        lines.append(f"| {column['name']} | `{column['jsonPath']}` | {wide} |")
    return "\n".join(lines) + "\n"


def _numbers(path: str, known: inspect.Type) -> Iterator[tuple[str, int]]:
    """Yield the path and the default of each number: the operator applies these, so that no schema has them."""
    match known:
        case inspect.StructType(fields=fields):
            for field in fields:
                inner = f"{path}.{field.encode_name}".lstrip(".")
                if type(field.default) is int and field.default:
                    yield inner, field.default
                yield from _numbers(inner, field.type)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield from _numbers(f"{path}[]", item)
        case inspect.DictType(value_type=value):
            yield from _numbers(f"{path}.*", value)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _numbers(path, each)
        case inspect.Metadata(type=inner_type):
            yield from _numbers(path, inner_type)
        case _:
            return


def _rows(path: str, schema: Schema, numbers: Mapping[str, int], *, required: bool) -> list[str]:
    default = "required" if required else _default(schema) or (f"`{numbers[path]}`" if path in numbers else "")
    text = " ".join([schema.get("description", ""), *_bounds(schema)]).strip()
    meaning = "<br>".join([text, *_messages(schema)])
    rows = [f"| `{path}` | {_type(schema)} | {default} | {meaning} |".replace("|  |", "| |")]
    # The rules have a page of their own, with examples.
    if path == "spec.rules":
        return [row.removesuffix(" |") + "<br>See [Rules](rules.md). |" for row in rows]
    inner: Schema = schema.get("items", schema)
    needed: list[str] = inner.get("required", [])
    below = f"{path}[]" if "items" in schema else path
    if "items" in schema and inner.get("x-kubernetes-validations"):
        rows += [f"| `{below}` | {_type(inner)} | | {rule} |" for rule in _messages(inner)]
    for name, field in inner.get("properties", {}).items():
        rows += _rows(f"{below}.{name}", field, numbers, required=name in needed)
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
        "minimum": "At least {}.",
        "maximum": "At most {}.",
    }
    given = ((text.format(schema[name]), schema[name]) for name, text in words.items() if name in schema)
    return [text.replace(" 1 items", " 1 item") for text, bound in given if bound]


# -- charts ---------------------------------------------------------------------------------------


CHARTS_HEAD = """\
# Charts

Twenty applications that tenants install from public Helm charts, as a tenant's owner. All of them pass in a tenant with
the standard `Baseline`. *Baseline* lists the values that differ from the defaults of the chart. *Restricted* lists the
further values with which the chart passes in a tenant with that standard. Four charts are refused there with their
values of `Baseline`: for these, *Restricted* names the rules, and the values with which the chart passes. "With limits"
stands for `{requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 150m, memory: 192Mi}}` or larger.

`tests/integration/test_charts.py` sends the objects of each chart, and the pods and claims that controllers make from
them, to an API server with a tenant of each standard, and compares the refusals with this table. It creates
ServiceAccounts and Roles; everything else is a server-side dry run, which no controller follows and no quota counts.
`tests/e2e/test_newcomer.py` creates the objects of the first row as a tenant's owner, on simulated nodes, and waits
until the Deployment is available. The objects were written after the charts and are shorter; no test downloads charts.

| application | chart | Baseline | Restricted |
|---|---|---|---|
"""


def charts_page() -> str:
    """Return the table of the charts that the integration test installs."""
    rows: list[str] = []
    for chart in tomllib.loads(CHARTS.read_text())["charts"]:
        further = _settings(chart.get("further", []))
        refused = "<br>".join(
            f"refused by {', '.join(f'`{rule}`' for rule in each['rules'])}: {each['fix']}"
            for each in chart.get("restricted", [])
        )
        restricted = refused or further or "no further values"
        rows.append(f"| {chart['name']} | {chart['chart']} | {_settings(chart['values']) or 'none'} | {restricted} |")
    return CHARTS_HEAD + "\n".join(rows) + "\n"


def _settings(values: list[str]) -> str:
    return "<br>".join(f"`{each}`" if re.match(r"[A-Za-z.-]+: ", each) and ";" not in each else each for each in values)


# -- rules ----------------------------------------------------------------------------------------


RULES_HEAD = """\
# Rules

The fields of `spec.rules` in [TenancyDefaults](tenancydefaults.md), [Tenant](tenant.md) and
[Subnamespace](subnamespace.md). How the levels are merged is in [Rules](../concepts/rules.md). Each family has an
`action`, too: `Enforce` refuses (the default), `Warn` accepts with a warning, `Audit` writes to the audit log.

*Standard* is the value while no administrator sets the rule; for `podSecurity` it depends on the level.
`spec.rules.standard` chooses between `Baseline` (the default) and `Restricted`; without a name, the value belongs to
both. `Baseline` only warns about some values that `Restricted` refuses. *Refuses* quotes what the API server says about
an example, and what would pass. *Fix* says whether `tenantry explain denied --fix` changes the manifest.
"""


def rules_page() -> str:
    """Return the reference of all rules: each with its standard, what it refuses and what would pass."""
    (tenants,) = [each for each in manifests.definitions() if each["spec"]["names"]["kind"] == "Tenant"]
    schema: Schema = tenants["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    families: Schema = schema["properties"]["spec"]["properties"]["rules"]["properties"]
    declared = {field.path: field for field in fields()}
    lines = [RULES_HEAD.rstrip()]
    for family, inner in families.items():
        if "properties" not in inner:
            continue  # the standard
        lines += ["", f"## {family}", "", inner["description"], ""]
        lines += ["| rule | value | meaning | standard | refuses | fix |", "|---|---|---|---|---|---|"]
        notes: dict[str, None] = {}
        for name, field in inner["properties"].items():
            path = f"{family}.{name}"
            if path not in declared:
                continue  # the action
            checks = [check for check in RULE_CHECKS if check.rule in _paths_of(path)]
            meaning = "<br>".join([" ".join([field["description"], *_bounds(field)]), *_messages(field)])
            # Messages name the rule, which one field may have several of.
            names = "<br>".join(f"`{name}`" for name in dict.fromkeys((path, *(check.rule for check in checks))))
            cells = (names, _type(field), meaning, _standard(declared[path]), _refuses(checks), _mends(checks))
            lines.append(f"| {' | '.join(cells)} |")
            notes |= {f"- `{path}`: {check.note}": None for check in checks if check.note}
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def _paths_of(path: str) -> tuple[str, ...]:
    # One field, two rules: a profile that is Unconfined, and one that is not set.
    seccomp = ("podSecurity.seccompUnconfined", "podSecurity.seccompUnset")
    return seccomp if path == "podSecurity.seccomp" else (path,)


def _standard(field: RuleField) -> str:
    values = [f"Baseline warns: {_value(field.warned)}"] if field.warned is not None else []
    if field.levels:
        return ", ".join([*values, *(f"{level}: {_value(value)}" for level, value in field.levels.items())])
    held = {name: _value(value) for name, value in field.standards.items()}
    if len(set(held.values())) == 1 and len(held) > 1:
        return ", ".join([*values, next(iter(held.values()))])
    return ", ".join([*values, *(f"{name}: {value}" for name, value in held.items())])


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in cast("tuple[object, ...]", value)) or "none"
    return f"`{value}`"


def _refuses(checks: Sequence[RuleCheck]) -> str:
    said: dict[str, None] = {}
    # The message comes from the check and its own example, so that the page cannot differ from the API server.
    for check in checks:
        target = next(each for each in TARGETS if each.name == check.scope.target)
        request = Request(
            group=target.group,
            resource=target.resources[0],
            namespace_labels={marks.RUNTIME: marks.RUNTIME_SANDBOXED, marks.TENANT: "acme"},
            object=check.scope.sample(check.example),
        )
        found = [each for each in violations(request, check.section("")) if each.check is check]
        said |= {f"{each.path} {each.what}: {each.fix}": None for each in found[:1]}
    return "<br>".join(said)


def _mends(checks: Sequence[RuleCheck]) -> str:
    return "yes" if any(check.mend is not None for check in checks) else ""


# -- reasons --------------------------------------------------------------------------------------


def reasons_page() -> str:
    """Return the table of conditions, reasons and events, in the groups of api/reasons.py."""
    lines = [
        "# Conditions, reasons and events",
        "",
        "They are part of the API: their names do not change within a version.",
    ]
    # Comments at the left margin are the titles of the groups.
    source = REASONS.read_text()
    comments = [(number, line.lstrip("# ")) for number, line in enumerate(source.splitlines(), 1) if line[:1] == "#"]
    constants = _constants(source)
    for index, (number, title) in enumerate(comments):
        end = comments[index + 1][0] if index + 1 < len(comments) else sys.maxsize
        rows = [f"| `{value}` | {meaning} |" for line, value, meaning in constants if number < line < end]
        lines += ["", f"## {title}", "", "| name | meaning |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _constants(source: str) -> list[tuple[int, str, str]]:
    """Return line, value and documentation of each constant.

    Raises:
        SystemExit: A constant has no documentation below it.
    """
    found: list[tuple[int, str, str]] = []
    body = ast.parse(source).body
    # Python keeps no docstrings of constants: the syntax tree has them as strings below the assignments.
    for node, below in itertools.pairwise([*body, ast.Pass()]):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
            continue
        if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
            raise SystemExit(f"{REASONS}:{node.lineno}: document {node.value.value!r} in a string below it")
        found.append((node.lineno, str(node.value.value), str(below.value.value)))
    return found


# -- checks ---------------------------------------------------------------------------------------


def checks_page() -> str:
    """Return the list of the checks of `tenantry audit`, by area."""
    weights = ", ".join(f"{severity} {weight}" for severity, weight in WEIGHTS.items())
    lines = [
        "# Checks of `tenantry audit`",
        "",
        f"The score is the share of decided checks that passed, weighted by severity: {weights}.",
        "*Kubernetes alone* shows the result in a namespace that Tenantry does not manage, for a user with the role",
        "`admin` there. *kubectl-mtb* names the equivalent check of that retired tool.",
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
            lines += ["", f"### {check.id}", "", about, "", f"*Fix:* {check.fix}"]
    return "\n".join(lines) + "\n"


# -- commands -------------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the help of every command."""
    lines = ["# The `tenantry` command", "", "## Exit codes", "", EXIT_CODES]
    for verb in VERBS:
        lines += _help(load(verb), f"tenantry {verb}")
    return "\n".join(lines)


def _help(command: click.Command, path: str) -> list[str]:
    # A fixed width, because the page must not depend on the terminal of its author.
    context = click.Context(command, info_name=path, terminal_width=WIDTH, max_content_width=WIDTH)
    # A context without a parent does not inherit the settings of the root command.
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
    """Return the files that differ from their generated text, and generated files that are no longer wanted."""
    found = [path for path, text in wanted.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    folders = {path.parent for path in wanted} - {Path("deploy")}
    surplus = [
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).glob("*")
        if path.is_file()
        and path.relative_to(ROOT) not in wanted
        and path.read_text().startswith((YAML_HEAD, MARKDOWN_HEAD))
    ]
    return sorted([*found, *surplus])


def main() -> int:
    """Write the files; with --check, return 1 if one is stale."""
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
        lines = difflib.unified_diff(before, wanted.get(path, "").splitlines(), str(path), "generated", lineterm="")
        print("\n".join(list(lines)[:SHOWN_LINES]))
    if stale(wanted):
        print("generated files are stale; run `.venv/bin/python tools/generate.py` and commit what it writes")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
