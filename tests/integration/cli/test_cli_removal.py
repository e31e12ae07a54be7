"""An owner is removed on a real control plane, and the tokens that it requested end."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from cli_command import SECONDS, Cli

Json = dict[str, Any]

TENANT = """\
apiVersion: tenantry.dev/v1alpha1
kind: Tenant
metadata: {name: leaving}
spec:
  owners: [{kind: User, name: ada}, {kind: User, name: bob}]
"""
TEAM = """\
apiVersion: tenantry.dev/v1alpha1
kind: Subnamespace
metadata: {name: team, namespace: leaving}
spec: {mode: Workspace, inheritance: {roleBindings: Sync}, owners: [{kind: Group, name: crew}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: held, namespace: leaving, finalizers: [a.example/b]}
"""
OWN = """\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: robot
  labels: {app: robot}
  annotations: {note: "kept"}
imagePullSecrets: [{name: registry}]
automountServiceAccountToken: false
---
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  serviceAccountName: robot
  automountServiceAccountToken: true
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: main
    image: registry.example.com/robot
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Secret
metadata: {name: forever, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: door}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
"""
GATE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: leaving-gate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:discovery"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
"""


def _kubectl(cli: Cli, *arguments: str, stdin: str = "") -> str:
    done = cli.kubectl(*arguments, stdin=stdin)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def _token(cli: Cli, namespace: str, account: str) -> str:
    return _kubectl(cli, "create", "token", account, "-n", namespace, "--duration=10h", "--as=ada").strip()


def _is_good(cli: Cli, token: str) -> bool:
    """Return whether the API server takes a token; for 10 s, it remembers those that it has taken."""
    review: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = _kubectl(cli, "create", "-f", "-", "-o", "json", stdin=msgspec.json.encode(review).decode())
    return bool(msgspec.json.decode(answer)["status"].get("authenticated", False))


def _secret(cli: Cli) -> str:
    """Return the token that Kubernetes puts into the Secret."""
    end = time.monotonic() + SECONDS
    asked = ("get", "secret", "forever", "-n", "leaving", "-o", 'go-template={{or .data.token "" | base64decode}}')
    while not (found := _kubectl(cli, *asked)):
        assert time.monotonic() < end, "the Secret has no token"
    return found


def _fill(cli: Cli) -> None:
    """Create ServiceAccounts up to the count of a namespace."""
    full = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: full-{}}}\n---\n"
    have = len(_kubectl(cli, "get", "serviceaccounts", "-n", "leaving", "-o", "name").split())
    many = "".join(full.format(number) for number in range(80 - have))
    _kubectl(cli, "create", "-n", "leaving", "-f", "-", stdin=many)


def _refuse_stranger(cli: Cli) -> None:
    """Check that nothing is created again for a user who was never an owner."""
    uids = ("get", "serviceaccounts", "-n", "leaving", "-o", "jsonpath={.items[*].metadata.uid}")
    before = _kubectl(cli, *uids)
    told = cli.run("tenant", "remove-owner", "leaving", "mallory", "--end-tokens", "--yes", code=2).stderr
    assert "no RoleBinding there names it, and it created no ServiceAccount or token Secret there" in told
    assert _kubectl(cli, *uids) == before


@pytest.mark.long
def test_the_tokens_of_a_removed_owner_end(cli: Cli) -> None:
    """Requested ones, and those in Secrets: of every ServiceAccount that the owner could reach, with stamps first."""
    _kubectl(cli, "apply", "-f", "-", stdin=f"{TENANT}---\n{GATE}")
    cli.run("wait", "tenant/leaving")
    _kubectl(cli, "apply", "-f", "-", stdin=TEAM)
    cli.run("wait", "subnamespace/team", "-n", "leaving")
    team = cli.run("name", "leaving", "team").stdout.strip()
    cli.await_pods("ada", "leaving")
    cli.await_right("ada", "create", "serviceaccounts", "leaving")
    cli.await_right("ada", "create", "serviceaccounts", team)
    _kubectl(cli, "apply", "-n", "leaving", "--as=ada", "-f", "-", stdin=OWN)
    held = [
        *(_token(cli, *each) for each in (("leaving", "robot"), ("leaving", "default"), (team, "default"))),
        *(_secret(cli), _token(cli, "leaving", "held")),
    ]
    assert _is_good(cli, _token(cli, "leaving", "robot"))

    file = cli.folder / "leaving.kubeconfig"
    file.write_text(cli.run("kubeconfig", "--tenant", "leaving", "--user", "ada", "--expires", "10m").stdout)
    crew = ("sub", "remove-owner", "team", "Group:crew", "-n", "leaving", "--kubeconfig", str(file))
    by_owner = cli.run(*crew, "--end-tokens", "--yes")
    assert "1 ServiceAccount created again: its earlier tokens are refused" in by_owner.stderr
    assert "note: cluster-wide rights are not shown: you may not read ClusterRoleBindings" in by_owner.stderr
    assert not _is_good(cli, held.pop(2))
    held.append(_token(cli, team, "default"))

    _fill(cli)

    removing = ("tenant", "remove-owner", "leaving", "ada")
    assert "stdin is not a terminal; confirm with --yes" in cli.run(*removing, code=2).stderr
    code, text = cli.in_terminal("n\n", *removing)
    assert (code, "nothing was changed" in text) == (1, True), text
    done = cli.run(*removing, "--end-tokens", "--yes", "-o", "json")
    result = msgspec.json.decode(done.stdout)
    assert len(result["accounts"]) == 81
    accounts = [each for each in result["accounts"] if not each["name"].startswith("full-")]
    assert (accounts[0]["namespace"], accounts[0]["name"], accounts[0]["madeBy"]) == ("leaving", "robot", "ada")
    # Either Kubernetes or ada's own command was the first to create that of the team again.
    assert {(each["namespace"], each["name"]) for each in accounts[1:]} == {
        ("leaving", "held"),
        ("leaving", "default"),
        (team, "default"),
    }
    assert result["accounts"][0]["pods"] == ["worker"]
    assert result["accounts"][0]["secrets"] == ["forever"]
    assert [result[key] for key in ("bindings", "clusterBindings", "notes")] == [["leaving/door"], ["leaving-gate"], []]
    assert "restart these pods, whose tokens have ended: leaving/worker" in done.stderr
    assert "keeps the rights of RoleBinding leaving/door, ClusterRoleBinding leaving-gate: remove it" in done.stderr
    assert [_is_good(cli, each) for each in held] == [False] * len(held)
    assert "no" in cli.kubectl("auth", "can-i", "create", "serviceaccounts/token", "-n", team, "--as=ada").stdout

    assert len(_kubectl(cli, "get", "serviceaccounts", "-n", "leaving", "-o", "name").split()) == 80
    robot = msgspec.json.decode(_kubectl(cli, "get", "serviceaccount", "robot", "-n", "leaving", "-o", "json"))
    assert (robot["metadata"]["labels"], robot["metadata"]["annotations"]["note"]) == ({"app": "robot"}, "kept")
    assert robot["metadata"]["annotations"]["tenantry.dev/made-by"] != "ada"
    assert (robot["imagePullSecrets"], robot["automountServiceAccountToken"]) == ([{"name": "registry"}], False)

    _refuse_stranger(cli)
    later = cli.run(*removing, "--keep-tokens", code=2).stderr
    assert "User:ada is not in spec.owners of tenant.tenantry.dev/leaving, which has User:bob" in later
    assert "is the only owner" in cli.run("tenant", "remove-owner", "leaving", "bob", "--yes", code=2).stderr
    _kubectl(cli, "delete", "clusterrolebinding", "leaving-gate")
    _kubectl(cli, "patch", "serviceaccount", "held", "-n", "leaving", "-p", '{"metadata": {"finalizers": null}}')
    cli.run("delete", "tenant", "leaving", "--yes", "--no-wait")
