"""Asking and approving from the command line, on a real control plane with a real operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cli_command import Cli, Said


@pytest.fixture(scope="module")
def acme(cli: Cli) -> Iterator[str]:
    """A tenant of ada's, in which bob may look."""
    cli.run("tenant", "create", "asked", "--owner", "ada", "--wait")
    made = cli.kubectl("create", "rolebinding", "bob", "-n", "asked", "--clusterrole", "view", "--user", "bob")
    assert made.returncode == 0, made.stderr
    cli.await_right("bob", "create", "rolerequests.tenantry.dev", "asked")
    yield "asked"
    cli.run("delete", "tenant", "asked", "--yes", "--no-wait")


@pytest.fixture(scope="module")
def who(cli: Cli, acme: str) -> dict[str, Path]:
    """The kubeconfigs of ada and bob."""
    found: dict[str, Path] = {}
    for user in ("ada", "bob"):
        found[user] = cli.folder / f"{user}-asks.kubeconfig"
        found[user].write_text(cli.run("kubeconfig", "--tenant", acme, "--user", user).stdout)
    return found


def run_as(cli: Cli, person: Path, *arguments: str, code: int = 0) -> Said:
    """Run the command as the user of a kubeconfig."""
    return cli.run(*arguments, "--kubeconfig", str(person), code=code, environment={"TENANTRY_NAME": ""})


def test_a_role_is_asked_for_shown_and_approved(cli: Cli, acme: str, who: dict[str, Path]) -> None:
    """E16: the member requests, the owner approves, and neither decides the own request."""
    asked = (
        "request",
        "create",
        "role",
        "edit",
        "--kind",
        "clusterrole",
        "-n",
        acme,
        "--for",
        "8h",
        "--reason",
        "tonight",
    )
    said = run_as(cli, who["bob"], *asked, "-o", "name")
    name = said.stdout.strip().partition("/")[2]
    assert f"tenantry approve rreq/{name} -n {acme}" in said.stderr
    (line,) = [line.split() for line in cli.run("requests", "-n", acme, "--pending").stdout.splitlines()[1:]]
    assert line[:7] == [f"rreq/{name}", acme, "ClusterRole", "edit", "8h", "bob", "Pending"]
    assert line[-1] == "tonight"

    assert "cannot patch" in run_as(cli, who["bob"], "approve", f"rreq/{name}", "-n", acme, code=5).stderr
    run_as(cli, who["ada"], "approve", f"rreq/{name}", "-n", acme, "--reason", "fine", "--wait")
    (found,) = cli.json("requests", "-n", acme, "-o", "json")["items"]
    assert (found["status"]["decidedBy"], found["status"]["reason"]) == ("ada", "fine")
    cli.await_right("bob", "create", "configmaps", acme)
    made = cli.kubectl("create", "configmap", "mine", "-n", acme, kubeconfig=who["bob"])
    assert made.returncode == 0, made.stderr
    assert "never changes" in run_as(cli, who["ada"], "deny", f"rreq/{name}", "-n", acme, code=5).stderr
    assert "no request waits" in cli.run("requests", "-n", acme, "--pending").stderr


def test_a_tenant_is_asked_for_and_approved(cli: Cli, who: dict[str, Path]) -> None:
    """E16: by any user, and approved by an administrator; who may not list requests is told so."""
    run_as(
        cli,
        who["bob"],
        "request",
        "create",
        "tenant",
        "bobs",
        "--quota",
        "cpu=2",
        "--reason",
        "a shop",
        "--as-name",
        "bobs",
    )
    assert "treq/bobs" in cli.run("requests", "--pending").stdout
    cli.run("approve", "treq/bobs", "--wait")
    cli.run("wait", "tenant/bobs")
    (owner,) = cli.json("get", "tenant", "bobs", "-o", "json")["spec"]["owners"]
    assert owner == {"kind": "User", "name": "bob"}
    cli.await_right("bob", "get", "tenantrequests.tenantry.dev/bobs", "default")
    # The second reads the namespace of the kubeconfig, and the cluster.
    for flags in (("-A",), ()):
        own = run_as(cli, who["bob"], "requests", *flags, "-o", "name")
        assert "tenantrequest.tenantry.dev/bobs" in own.stdout.splitlines()
        assert "only your own TenantRequests are shown" in own.stderr
    assert "`tenantry request list` shows your own" in run_as(cli, who["bob"], "get", "tenantrequests", code=5).stderr
    run_as(cli, who["bob"], "wait", "tenantrequest/bobs")
    assert "cannot list" in run_as(cli, who["ada"], "requests", "-A", code=5).stderr
    cli.run("delete", "tenant", "bobs", "--yes", "--no-wait")


def test_a_request_is_decided_by_its_name_alone(cli: Cli, acme: str, who: dict[str, Path]) -> None:
    """E16: where there is one of the name; of two it is asked which, and of none it is said."""
    ask = ("request", "create", "role", "edit", "--kind", "clusterrole", "-n", acme, "--as-name")
    run_as(cli, who["bob"], *ask, "plain")
    said = run_as(cli, who["ada"], "approve", "plain", "--reason", "fine")
    assert said.stderr == f"rolerequest.tenantry.dev/plain in '{acme}' approved\n"
    run_as(cli, who["bob"], *ask, "both")
    run_as(cli, who["bob"], "request", "create", "tenant", "both", "--as-name", "both")
    cli.await_right("bob", "get", "tenantrequests.tenantry.dev/both", acme)
    said = run_as(cli, who["bob"], "approve", "both", code=2)
    assert "'both' is the name of 2 requests: write treq/both or rreq/both" in said.stderr
    run_as(cli, who["ada"], "deny", "both", "-n", acme)
    assert (
        f"you see no request 'none' in '{acme}'" in run_as(cli, who["ada"], "deny", "none", "-n", acme, code=5).stderr
    )
    cli.run("delete", "treq/both", "--yes")
    cli.run("delete", "rreq", "plain", "both", "-n", acme, "--yes")


def test_a_decided_request_is_not_decided_again(cli: Cli, acme: str, who: dict[str, Path]) -> None:
    """E16: the same decision by another one is refused, too, with who made it."""
    run_as(
        cli, who["bob"], "request", "create", "role", "view", "--kind", "clusterrole", "-n", acme, "--as-name", "once"
    )
    run_as(cli, who["ada"], "approve", "rreq/once", "-n", acme)
    said = cli.run("approve", "rreq/once", "-n", acme, code=5).stderr
    assert "status.decision is Approved already, by ada, and never changes: make a new request" in said
    cli.run("delete", "rreq/once", "-n", acme, "--yes")


def test_a_request_cannot_write_control_characters_to_a_terminal(cli: Cli, acme: str, who: dict[str, Path]) -> None:
    """E16: a role's name and a reason are shown as they are, also in what the API server says."""
    asked = (
        "request",
        "create",
        "role",
        "ad\x1b[2Kmin",
        "-n",
        acme,
        "--as-name",
        "odd",
        "--reason",
        "a \u202e b\x1b[1A",
    )
    run_as(cli, who["bob"], *asked)
    (line,) = [line for line in cli.run("requests", "-n", acme).stdout.splitlines() if line.startswith("rreq/odd ")]
    assert "Role ad\\x1b[2Kmin" in line
    assert line.endswith("a \\u202e b\\x1b[1A")
    assert "ad\\x1b[2Kmin" in cli.run("get", "rreq", "odd", "-n", acme).stdout
    assert "Role ad\\x1b[2Kmin to other users" in run_as(cli, who["ada"], "approve", "odd", "-n", acme, code=5).stderr
    cli.run("delete", "rreq/odd", "-n", acme, "--yes")


def test_a_user_in_very_many_groups_can_send_requests(cli: Cli) -> None:
    """E16: a directory puts people into a thousand, which the API server writes into what they ask for."""
    groups = [f"--as-group=corp:team-{index}" for index in range(1000)]
    wanted = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "TenantRequest", "metadata": {"name": "thousand"}}
    text = msgspec.json.encode({**wanted, "spec": {"tenant": "thousand"}}).decode()
    made = cli.kubectl(
        "create", "-f", "-", "--as=dora", "--as-group=system:authenticated", *groups, "-o", "name", stdin=text
    )
    assert made.stdout == "tenantrequest.tenantry.dev/thousand\n", made.stderr
    cli.run("deny", "thousand")
    cli.run("delete", "treq/thousand", "--yes")


def test_a_requester_cannot_approve_the_own_request(cli: Cli) -> None:
    """E16: an administrator does not, either; denying is not approving, but withdrawing is deleting."""
    cli.run("request", "create", "clusterrole", "view", "--as-name", "own", "--subject", "carol")
    assert "another user must decide" in cli.run("approve", "crreq/own", code=5).stderr
    cli.run("delete", "crreq/own", "--yes")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("approve", "tenant/acme"), "are no requests"),
        (("approve", "rreq"), "tenantry request list --pending"),
        (("approve", "rreq/x"), "name one with -n"),
        (("approve", "treq/x", "-n", "acme"), "are in no namespace"),
        (
            ("request", "create", "role", "edit", "-n", "acme", "--subject", "ServiceAccount:ci/bot"),
            "must be a User or a Group",
        ),
        (
            ("request", "create", "role", "edit", "-n", "acme", "--subject", "ServiceAccount:bot"),
            "must be a User or a Group",
        ),
        (
            ("request", "create", "role", "edit", "-n", "acme", "--subject", "User:"),
            "--subject 'User:' must have a name",
        ),
        (("request", "create", "tenant", "acme", "--as-name", "Not_One"), "--as-name"),
        (("request", "create", "tenant", "kube-acme"), "must not be default"),
        (("request", "create", "tenant", "acme", "--for", "5s"), "at least 60"),
        (("request", "create", "tenant", "acme", "--quota", "bananas=3"), "must have only keys"),
        (("requests", "-n", "acme", "-A"), "not both"),
    ],
)
def test_wrong_input_is_refused(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    """E16, L01: with what it must be."""
    assert message in cli.run(*arguments, code=2).stderr
