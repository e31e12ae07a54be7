"""Check what no other linter knows of: owners of tasks, one function for lists, names of sides, reasons for `Json`.

Each check reads the syntax tree of a module:

    tasks   `create_task` is asked of a TaskGroup of the module: of `async with asyncio.TaskGroup() as group`, or of a
            parameter or an attribute that is declared as one. A loop's own tasks outlive an error of their parent.
    lists   only `api/wording.py` writes "and N more", so that all messages shorten a list at the same length.
    sides   The word "peer" is in no identifier of `mirror/`, which has an upper and a lower side, whatever they are.
    hosting The word "dedicated" is in no line of `hosting/` and of go/hosted, which host a control plane whatever it is
            for: what a dedicated cluster needs is a field of a control plane first.
    Json    `Json` and `dict[str, Any]` stand only in the modules of `JSON`: objects of known kinds have models.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tenantry"

WORDING = "api/wording.py"
MIRROR = "mirror/"
HOSTING = "hosting/"
GO_HOSTED = ROOT / "go" / "hosted"
KUBERNETES_PEERS = ("mirror/kinds/networkpolicies.py",)
"""Modules that name Kubernetes' own NetworkPolicyPeer."""

USE_MODEL = "use the model of the kind, or add the module to JSON in tools/conventions.py"

JSON = {
    "kube/": "requests and responses of any kind",
    "engine/": "plans, patches and previews of any kind",
    "hostedpods/": "objects of Kubernetes' own kinds, which are only sent to the API server",
    "install/": "manifests of Kubernetes' own kinds, which are only sent to the API server",
    "audit/": "attempts and listings of any kind; what another platform made has no model here",
    "policy/": "the objects that rules check, and their repair: users write them in any shape",
    "api/model.py": "the alias",
    "api/crd.py": "OpenAPI schemas",
    "api/rulefields.py": "OpenAPI schemas",
    "bench/": "pods and policies that only put load on an API server",
    "controllers/tenant/summary.py": "a spec as it is stored, of which empty parts are left out",
    "controllers/clusterapi/": "Clusters of Cluster API, of which few fields are read, and merge patches",
    "controllers/dedicatedcluster/clusterreport.py": "the status of a Cluster of Cluster API",
    "controllers/dedicatedcluster/topology.py": "a Cluster of Cluster API, of which few fields are known",
    "controllers/dedicatedcluster/topologies.py": "a Cluster of Cluster API, of which few fields are known",
    "views/drift/rendering.py": "a Cluster of Cluster API, which is printed whole",
    "views/drift/topologies.py": "a Cluster and a ClusterClass of Cluster API, of which few fields are known",
    "controllers/suspension.py": "a RoleBinding is changed in place: fields that no model knows must stay",
    "controllers/installation/": "manifests of Kubernetes' own kinds, whole, in the versions of any client",
    "controllers/webhook/": "objects of any kind that the API server asks about, and a manifest of its own kind",
    "controllers/hosts/gather.py": "Ingresses, routes and Gateways in several versions",
    "controllers/ownnodes.py": "a merge patch of a SliceClaim",
    "views/support.py": "objects of any kind, as they are stored",
    "cli/describe/plain.py": "objects of any kind, whose fields are printed as they are",
    "controllers/tenantmetrics/scrapers.py": "TokenReviews and SubjectAccessReviews",
    "controllers/parts/desired.py": "merge patches of Nodes",
    "controllers/parts/nodes.py": "merge patches of Nodes",
    "controllers/quota/desired.py": "merge patches",
    "controllers/quota/past.py": "managed fields and merge patches",
    "controllers/tenantnamespace.py": "a merge patch of the status of a ResourceQuota",
    "controllers/nodehandover/desired.py": "merge patches of Nodes",
    "controllers/nodehandover/nodemarks.py": "merge patches of Nodes",
    "controllers/slices/cleaning.py": "merge patches of Nodes",
    "controllers/slices/desired.py": "merge patches of Nodes",
    "controllers/slices/decision.py": "merge patches of Nodes",
    "controllers/slices/holding.py": "merge patches of Nodes",
    "controllers/slices/nodes.py": "merge patches of Nodes",
    "controllers/conversion/": "objects of users, of many kinds and with fields of any version, which are copied whole",
    "cli/listing.py": "objects of any kind, which are printed",
    "cli/peer/invitation.py": "a Secret that is applied, and a TokenRequest",
    "cli/peer/tunnels.py": "a Secret that is applied, and a TokenRequest",
    "cli/peerhalves.py": "a Secret that is applied, and a TokenRequest",
    "cli/peer/giveup.py": "a merge patch of an annotation",
    "controllers/clustercontents/": "objects of Kubernetes' own kinds, which are applied whole, and managed fields",
    "controllers/children.py": "merge patches",
    "controllers/dedicatedcluster/desired.py": "merge patches",
    "controllers/offloading/controller.py": "merge patches",
    "controllers/offloading/givingup.py": "merge patches of a status",
    "controllers/offloading/desired.py": "merge patches",
    "controllers/peering/": "objects of Kubernetes' own kinds, which are applied whole, TokenRequests, and Nodes",
    "controllers/joining/": "Nodes of another API server, with the fields that a simulated one needs",
    "controllers/virtualcontrolplane/": "objects of Kubernetes' own kinds, which are applied whole, and TokenRequests",
    "hosting/admission.py": "objects of any kind, whose storage another module decides",
    "hosting/forwarding.py": "objects of any kind, which another module makes",
    "mirror/": "objects that are translated field by field; unlisted fields must be left out, or stay, unread",
    "netpol/serviceapi.py": "Services and EndpointSlices, served as they were written",
    "world/netpol/services.py": "Services and EndpointSlices, which kube-proxy reads in its own version",
    "world/netpol/view.py": "the same",
    "world/oidc.py": "entries of an AuthenticationConfiguration, which is a file and no object of an API server",
    "world/rulechecks.py": "JSON schemas of fields, which msgspec keeps as JSON",
    "views/access.py": "a SubjectAccessReview, which is sent and not stored",
    "views/acting.py": "requests that are tried as another user, of any kind",
    "views/drift/applied.py": "objects of files of any kind, and the answers to dry runs",
    "views/drift/changes.py": "objects of any kind, whose fields are compared one by one",
    "views/drift/files.py": "objects of any kind, as they are stored",
    "views/drift/pruned.py": "objects of any kind, of which the marks of tools are read",
    "views/drift/steps.py": "objects of any kind, whose fields are compared one by one",
    "views/manifests.py": "a document of a file, as it is",
    "views/drift/own.py": "an answer to a dry run, which is shown whole",
    "views/installation.py": "installed objects of any kind, whose fields are compared one by one",
    "views/installationchanges.py": "the same",
    "views/explain/": "the manifest that a user was refused, of any kind, and what decides about it",
    "cli/planeupgrade.py": "merge patches",
    "cli/gitmanaged.py": "merge patches, which are printed",
    "hosting/upgradefacts.py": "objects inside of many kinds, of which few fields are read",
    "cli/flags.py": "any object that a command creates, printed as the server stored it",
    "cli/get.py": "objects of any kind that are printed",
    "cli/convert.py": "objects of users, of many kinds, of which the plan reads few fields; merge patches",
    "cli/controlplane.py": "a kubeconfig of which one name is changed; the rest stays as it is",
    "cli/creation.py": "the object as the server stored it, printed by -o",
    "cli/cluster/create.py": "the object as the server stored it, printed by -o",
    "cli/cluster/changes.py": "merge patches",
    "cli/local/outsidenode.py": "a merge patch, and a Secret that is read",
    "cli/phases.py": "a merge patch of an annotation",
    "cli/planesnapshots.py": "merge patches",
    "cli/rotation.py": "merge patches",
    "cli/imports/adoption.py": "a merge patch of a namespace",
    "cli/imports/undoing.py": "merge patches of a namespace",
    "cli/install.py": "manifests of any kind",
    "cli/output.py": "objects of any kind that are printed",
    "cli/removal.py": "a ServiceAccount is created again with all of its fields",
    "cli/request.py": "the created object, printed as the server stored it",
    "cli/slice.py": "the created object, printed as the server stored it",
    "cli/sub.py": "the created object, printed as the server stored it",
    "cli/tenant.py": "the created object, printed as the server stored it",
    "cli/uninstall.py": "manifests of any kind",
    "local/authentication.py": "a configuration file of kube-apiserver",
    "local/real/": "configuration files and output of programs on a node",
}
"""Where an object of unknown kind is the subject: a file, or a folder that ends with "/", and the reason."""


def findings(name: str, text: str) -> Iterator[str]:
    """Yield a line for each place of a module that breaks a convention: where, and what to do.

    Args:
        name: The path below src/tenantry.
        text: The module.
    """
    tree = ast.parse(text)
    found = [*_tasks(tree), *_lists(tree, name), *_sides(tree, name), *_json(tree, name)]
    found += _hosted(text) if name.startswith(HOSTING) else ()
    yield from (f"src/tenantry/{name}:{line}: {problem}" for line, problem in sorted(found))


def _tasks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    groups = set(_groups(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "create_task" and ast.unparse(node.value) not in groups:
            yield node.lineno, f"{ast.unparse(node)}: ask a TaskGroup for the task, or use engine.tasks.in_background"


def _groups(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.withitem(context_expr=ast.Call(func=called), optional_vars=ast.Name(id=bound)):
                if ast.unparse(called) == "asyncio.TaskGroup":
                    yield bound
            case ast.arg(arg=bound, annotation=ast.expr() as declared) if "asyncio.TaskGroup" in ast.unparse(declared):
                yield bound
            case ast.AnnAssign(target=target, annotation=declared) if "asyncio.TaskGroup" in ast.unparse(declared):
                yield ast.unparse(target)
            case _:
                pass


def _lists(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and name != WORDING and any(map(_is_count, node.values, node.values[1:])):
            yield node.lineno, "shorten the list with api.wording.shortened, or api.wording.more"


def _is_count(before: ast.expr, after: ast.expr) -> bool:
    """Return whether two parts of an f-string are a number and the word "more" at the end of a clause."""
    text = after.value if isinstance(after, ast.Constant) else ""
    return isinstance(before, ast.FormattedValue) and re.match(r" more(?:$|[^\w ])", str(text)) is not None


def _sides(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    if not name.startswith(MIRROR) or name in KUBERNETES_PEERS:
        return
    for node in ast.walk(tree):
        for identifier in _identifiers(node):
            if "peer" in identifier.lower():
                yield getattr(node, "lineno", 0), f"{identifier}: name it by its side, upper or lower"


def _hosted(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if "dedicated" in line.lower():
            yield number, "a hosted control plane does not know that it is of a dedicated cluster: name what it needs"


def hosted(folder: Path) -> Iterator[str]:
    """Yield a line for each place of the Go sources below a folder that breaks the convention of hosting."""
    for file in sorted(folder.rglob("*.go")):
        for line, problem in _hosted(file.read_text()):
            yield f"{file.relative_to(folder.parent.parent).as_posix()}:{line}: {problem}"


def _identifiers(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield from (name, other or "")
        case ast.ImportFrom(module=str(name)):
            yield name
        case _:
            pass


def _json(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    if any(name.startswith(place) if place.endswith("/") else name == place for place in JSON):
        return
    for node in ast.walk(tree):
        is_alias = isinstance(node, ast.alias) and node.name == "Json"
        is_dict = isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[str, Any]"
        if is_alias or is_dict:
            yield getattr(node, "lineno", 0), USE_MODEL


def unused(names: list[str]) -> list[str]:
    """Return the places in `JSON` that no longer exist."""
    return [place for place in JSON if not any(name.startswith(place) for name in names)]


def main() -> int:
    """Print all findings; return 1 if there are any."""
    modules = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    found = [line for name, text in modules.items() for line in findings(name, text)]
    found += [f"tools/conventions.py: {place}: no module is there; remove it" for place in unused([*modules])]
    found += hosted(GO_HOSTED)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
