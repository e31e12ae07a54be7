"""Subnamespaces from the command line, as a user runs it, on a real control plane with a real operator."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cli_command import NAME, SECONDS, Cli

Json = dict[str, Any]

NO_CLUSTER = {"TENANTRY_NAME": "", "TENANTRY_HOME": "/nonexistent", "KUBECONFIG": ""}


@contextmanager
def tenant(cli: Cli, name: str, *flags: str) -> Generator[str]:
    """A tenant that is ready, and gone afterwards."""
    cli.run("tenant", "create", name, "--owner", "ada", "--wait", *flags)
    try:
        yield name
    finally:
        cli.run("delete", "tenant", name, "--yes", "--no-wait")


@pytest.fixture(scope="module")
def uni(cli: Cli) -> Iterator[str]:
    """A tenant whose tests use names of their own."""
    with tenant(cli, "uni") as name:
        yield name


def create(cli: Cli, parent: str, name: str, *flags: str) -> str:
    """Make a subnamespace that is ready and return its namespace."""
    cli.run("sub", "create", name, "-n", parent, "--wait", *flags)
    return child(cli, parent, name)


def child(cli: Cli, parent: str, name: str) -> str:
    return cli.run("name", parent, name).stdout.strip()


def get(cli: Cli, parent: str, name: str) -> Json:
    return cli.json("get", "sub", name, "-n", parent, "-o", "json")


def test_a_subnamespace_lives_and_goes(cli: Cli, uni: str) -> None:
    """E04, E07: made under the name that any client can compute, printed, deleted with its namespace."""
    made = cli.run("sub", "create", "law", "-n", uni, "--wait", "-o", "name")
    law = child(cli, uni, "law")
    assert made.stdout == "subnamespace.tenantry.dev/law\n"
    assert made.stderr.splitlines() == [
        "subnamespace.tenantry.dev/law in 'uni' created",
        f"its namespace is called '{law}'",
        "subnamespace.tenantry.dev/law in 'uni' is ready",
    ]
    assert cli.kubectl("get", "namespace", law).returncode == 0
    assert get(cli, uni, "law")["status"]["namespace"] == law
    told = [line.split() for line in cli.run("describe", "tenant", uni).stdout.splitlines()]
    assert ["law", "Workspace", law] in told
    page = cli.run("describe", "subnamespace", "law", "-n", uni).stdout
    assert f"Namespace:                    {law}" in page
    assert "roleBindings   Sync" in page
    cli.run("wait", "sub/law", "-n", uni)
    gone = cli.run("sub", "delete", "law", "-n", uni, "--yes")
    assert gone.stderr.splitlines() == [
        f"subnamespace.tenantry.dev/law in 'uni': namespace '{law}' with 0 pods and everything else in it",
        "subnamespace.tenantry.dev/law in 'uni' is gone",
    ]
    assert "NotFound" in cli.kubectl("get", "namespace", law).stderr
    cli.run("wait", "sub/law", "-n", uni, "--for", "deleted")


def test_what_is_made_can_be_kept_in_a_file_first(cli: Cli, uni: str) -> None:
    """E05, E06, X05: every flag ends up in the spec, and the output is what apply takes."""
    flags = ("--mode", "subtenant", "--owner", "Group:buyers", "--inherit", "Secrets=copy,widgets.example.com=Copy")
    more = ("--label", "uni.tenantry.dev/team=a,uni.tenantry.dev/tier=b", "--allow-cascading-deletion")
    lease = ("--expires", "2127-01-31T18:00:00+02:00", "--scope", "federated")
    text = cli.run("sub", "create", "shop", "-n", uni, *flags, *more, *lease, "--dry-run").stdout
    assert "NotFound" in cli.kubectl("get", "subnamespace", "shop", "-n", uni).stderr
    applied = cli.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=text)
    assert applied.returncode == 0, applied.stderr
    for line in (
        "mode: Subtenant",
        "- kind: Group",
        "secrets: Copy",
        "resource: widgets.example.com",
        "uni.tenantry.dev/tier: b",
        "allowCascadingDeletion: true",
        "expiresAt: '2127-01-31T16:00:00Z'",
        "scope: Federated",
    ):
        assert line in text, text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Law", "-n", "uni"), "metadata.name is 'Law'; it must be a DNS label of at most 46"),
        (("law",), "name the namespace with -n"),
        (("law", "-n", "uni", "--mode", "subtenant"), "spec.owners must have at least one owner"),
        (("law", "-n", "uni", "--inherit", "secrets=Copy"), "unless a Workspace inherits roleBindings"),
        (("law", "-n", "uni", "--inherit", "pods=Copy"), "--inherit names 'pods', which must be one of roles, "),
        (("law", "-n", "uni", "--inherit", "secrets=Always"), "'Always' must be None, Copy or Sync"),
        (("law", "-n", "uni", "--inherit", "secret=Copy,secrets=Sync"), "--inherit names 'secrets' twice"),
        (("law", "-n", "uni", "--inherit", "secrets"), "--inherit 'secrets' must be KEY=VALUE"),
        (("law", "-n", "uni", "--expires", "soon"), "--expires 'soon' must be a duration"),
        (("law", "-n", "uni", "--expires", "2001-01-01T00:00:00Z"), "is past"),
        (("law", "-n", "uni", "--quota", "cpu=-1"), "spec.quota.hard[cpu] is '-1'; it must not be negative"),
        (("law", "-n", "default"), "the namespace 'default' does not belong to a tenant"),
        (("law", "-n", "uni", "--mode", "team"), "'team' is not one of 'workspace', 'subtenant'"),
    ],
)
def test_bad_input_names_the_field_and_the_fix(cli: Cli, uni: str, arguments: tuple[str, ...], said: str) -> None:
    """E05, E06, E07, E15: exit code 2, nothing made."""
    assert uni == "uni"
    assert said in cli.run("sub", "create", *arguments, code=2).stderr


def test_what_a_policy_refuses_is_said_in_its_own_words(cli: Cli, uni: str) -> None:
    """E11: without the names of policies and bindings."""
    big = ("sub", "create", "big", "-n", "small", "--quota", "pods=1")
    with tenant(cli, "small", "--quota", "cpu=1"):
        text = cli.run(*big, "--dry-run").stdout
        end = time.monotonic() + SECONDS
        # The policy learns of a quota a moment after it was written, and has nothing against anything until then.
        while not cli.kubectl("create", "--dry-run=server", "-f", "-", stdin=text).returncode:
            assert time.monotonic() < end
        said = cli.run(*big, code=5).stderr
    assert said.startswith('tenantry: subnamespaces.tenantry.dev "big": spec.quota.hard must not have pods'), uni


def test_a_label_that_the_tenant_does_not_allow_fails_the_command(cli: Cli, uni: str) -> None:
    """E07: without --wait, too; the object stays, and can be corrected."""
    said = cli.run("sub", "create", "odd", "-n", uni, "--label", "team=a", code=1).stderr
    assert "exists, and is not ready: NotAllowed: " in said
    assert "'team'" in said
    cli.run("sub", "delete", "odd", "-n", uni, "--yes")


def test_flags_about_namespaces_mean_something_or_are_refused(cli: Cli, uni: str) -> None:
    """E15: -n and -A, as kubectl's users expect them."""
    for verb in (("get",), ("wait", "--all"), ("describe",), ("delete", "--yes")):
        words = ("tenants",) if verb[0] in {"get", "wait"} else ("tenant", uni)
        said = cli.run(verb[0], *words, *verb[1:], "-n", uni, code=2).stderr
        assert "tenants are in no namespace: leave --namespace out" in said
    assert "leave --all-namespaces out" in cli.run("get", "trq", "-A", code=2).stderr
    assert "not both" in cli.run("get", "sub", "-A", "-n", uni, code=2).stderr
    assert "say with -n where they are" in cli.run("get", "sub", "x", "-A", code=2).stderr
    assert "name one with -n, as in `-n acme`, or all with -A" in cli.run("get", "sub", code=2).stderr
    assert "name one with -n" in cli.run("delete", "sub/x", "--yes", code=2).stderr


def test_tables_have_the_namespace_only_where_it_is_not_known(cli: Cli, uni: str) -> None:
    create(cli, uni, "tabled")
    ours = cli.run("get", "subnamespaces", "-n", uni).stdout.splitlines()
    theirs = cli.kubectl("get", "subnamespaces", "-n", uni).stdout.splitlines()
    assert ours[0].split() == theirs[0].split()
    everywhere = cli.run("get", "sub", "-A").stdout.splitlines()
    assert everywhere[0].split()[:3] == ["NAMESPACE", "NAME", "READY"]
    assert [uni, "tabled"] in [line.split()[:2] for line in everywhere]
    # Without a kind: all of them, wherever they are; with -n those that are in it.
    assert "subnamespace.tenantry.dev/tabled" in cli.run("get", "-o", "name").stdout
    assert "tenant.tenantry.dev" not in cli.run("get", "-n", uni, "-o", "name").stdout
    missing = cli.run("get", "sub", "tabled", "absent", "-n", uni, code=5)
    assert "not found: subnamespace.tenantry.dev/absent in 'uni'; `tenantry get subnamespaces -n uni`" in missing.stderr


def test_a_watch_of_subnamespaces_prints_changes(cli: Cli, uni: str) -> None:
    create(cli, uni, "watched")
    with cli.start("get", "sub", "watched", "-n", uni, "-w", "-o", "wide") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:2] == ["NAME", "READY"]
        *before, _age = watching.stdout.readline().split()
        assert before[:2] == ["watched", "True"]
        cli.run("sub", "renew", "watched", "-n", uni, "--for", "2127-01-31T18:00:00Z")
        # Its operator may write once more what no column shows.
        lines = iter(watching.stdout.readline, "")
        assert "2127-01-31T18:00:00Z" in next(line for line in lines if line.split()[:-1] != before)
        watching.send_signal(2)
        assert watching.wait(SECONDS) == 130


def test_one_with_others_inside_is_not_deleted_by_accident(cli: Cli, uni: str) -> None:
    """E04: the refusal lists what is inside; --cascade takes all of it."""
    top = create(cli, uni, "top")
    inner = create(cli, top, "inner")
    create(cli, inner, "innermost")
    for verb in (("sub", "delete", "top"), ("delete", "sub", "top")):
        said = cli.run(*verb, "-n", uni, "--yes", code=2).stderr
        assert "has 1 subnamespace inside (inner); delete it first, or all with" in said
        assert "`tenantry sub delete top -n uni --cascade`" in said
    assert "deletionTimestamp" not in get(cli, uni, "top")["metadata"]
    gone = cli.run("sub", "delete", "top", "-n", uni, "--cascade", "--yes").stderr
    assert "with 0 pods, 1 subnamespace (inner) and what is below and everything else in it" in gone
    for namespace in (top, inner):
        assert "NotFound" in cli.kubectl("get", "namespace", namespace).stderr


def test_a_subnamespace_moves_with_all_that_is_inside(cli: Cli, uni: str) -> None:
    """E04: its namespace stays the same, and so does what is below; a circle is refused."""
    moved, target = create(cli, uni, "moved"), create(cli, uni, "target")
    inside = create(cli, moved, "inside")
    cli.kubectl("create", "configmap", "kept", "-n", moved)
    said = cli.run("sub", "move", "moved", "--from", uni, "--to", inside, code=2).stderr
    assert f"--to '{inside}' is 'moved' itself, or below it" in said
    assert "it is there already" in cli.run("sub", "move", "moved", "--from", uni, "--to", uni, code=2).stderr
    cli.run("sub", "move", "moved", "--from", uni, "--to", target)
    assert "not found" in cli.run("get", "sub", "moved", "-n", uni, code=5).stderr
    assert get(cli, target, "moved")["status"]["namespace"] == moved
    assert cli.kubectl("get", "configmap", "kept", "-n", moved).returncode == 0
    (core,) = cli.json("tree", uni, "-o", "json")["tenants"][0]["namespaces"]
    (below,) = next(each for each in core["children"] if each["name"] == target)["children"]
    assert (below["name"], [each["name"] for each in below["children"]]) == (moved, [inside])


def test_no_move_between_tenants(cli: Cli, uni: str) -> None:
    create(cli, uni, "homely")
    with tenant(cli, "elsewhere") as other:
        said = cli.run("sub", "move", "homely", "--from", uni, "--to", other, code=2).stderr
    assert "is a namespace of tenant 'elsewhere', --from 'uni' of tenant 'uni'" in said


def test_leases_are_renewed(cli: Cli, uni: str) -> None:
    """X05: of subnamespaces and tenants; never takes the end away."""
    create(cli, uni, "leased", "--expires", "72h")
    first = get(cli, uni, "leased")["spec"]["expiresAt"]
    said = cli.run("sub", "renew", "leased", "-n", uni, "--for", "2127-01-31T18:00:00Z").stderr
    assert said == "subnamespace.tenantry.dev/leased in 'uni' ends at 2127-01-31T18:00:00Z\n"
    assert first < get(cli, uni, "leased")["spec"]["expiresAt"] == "2127-01-31T18:00:00Z"
    cli.run("sub", "renew", "leased", "-n", uni, "--for", "never")
    assert "expiresAt" not in get(cli, uni, "leased")["spec"]
    cli.run("tenant", "renew", uni, "--for", "720h")
    assert "(in 29d23h)" in cli.run("describe", "tenant", uni).stdout
    cli.run("tenant", "renew", uni, "--for", "never")
    assert "Expires:                 never" in cli.run("describe", "tenant", uni).stdout
    assert "is past" in cli.run("tenant", "renew", uni, "--for", "2001-01-01T00:00:00Z", code=2).stderr
    assert "absent" in cli.run("sub", "renew", "leased", "absent", "-n", uni, "--for", "1h", code=5).stderr
    assert "expiresAt" not in get(cli, uni, "leased")["spec"]


def test_limits_of_the_tree_are_flags_of_the_tenant(cli: Cli) -> None:
    """E04: how many, how deep, and until when."""
    flags = ("--max-subnamespaces", "5", "--max-depth", "2", "--expires", "30d", "--dry-run", "-o", "json")
    spec = cli.json("tenant", "create", "limited", "--owner", "ada", *flags)["spec"]
    assert spec["namespaces"] == {"maxCount": 5, "maxDepth": 2}
    assert spec["expiresAt"].endswith("Z")


def test_an_owner_works_in_the_namespace_of_the_context(cli: Cli, uni: str) -> None:
    """E04: with a tenant's own kubeconfig no -n is needed."""
    file = cli.folder / "owner.kubeconfig"
    file.write_text(cli.run("kubeconfig", "--tenant", uni, "--expires", "10m").stdout)
    mine = ("--kubeconfig", str(file))
    no_name = {"TENANTRY_NAME": ""}
    cli.await_right("ada", "create", "subnamespaces.tenantry.dev", uni)
    cli.run("sub", "create", "ours", "--wait", *mine, environment=no_name)
    ours = child(cli, uni, "ours")
    assert cli.run("name", uni, "ours", *mine, environment=no_name).stdout.strip() == ours
    listed = cli.run("get", *mine, environment=no_name)
    assert ours in listed.stdout
    assert "you may not list tenants" in listed.stderr
    cli.run("sub", "delete", "ours", "--yes", *mine, environment=no_name)


def test_an_owner_draws_what_is_theirs(cli: Cli) -> None:
    """E04, E05: workspaces with what is inside, subtenants from outside only; an administrator sees all of it."""
    no_name = {"TENANTRY_NAME": ""}
    with tenant(cli, "drawn") as name:
        team = create(cli, name, "team")
        shop = create(cli, team, "shop", "--mode", "subtenant", "--owner", "bob")
        create(cli, shop, "secret", "--owner", "bob")
        file = cli.folder / "drawn.kubeconfig"
        file.write_text(cli.run("kubeconfig", "--tenant", name, "--expires", "10m").stdout)
        mine = ("tree", "--kubeconfig", str(file))
        for user, where in (("ada", name), ("ada", team), ("bob", shop)):
            cli.await_right(user, "list", "subnamespaces.tenantry.dev", where)
        lines = cli.run(*mine, environment=no_name).stdout.splitlines()
        assert lines == [
            "namespace drawn  Active  no quota",
            f"└── team  Workspace  {team}  Active  no quota",
            f"    └── shop  Subtenant  {shop}  not yours to look into",
        ]
        assert cli.run(*mine, name, environment=no_name).stdout.splitlines() == lines
        (view,) = cli.json("tree", "-n", team, "-o", "json")["namespaces"]
        assert view["children"][0]["children"][0]["subnamespace"] == "secret"
        assert "cannot get" in cli.run(*mine, "-n", shop, code=5, environment=no_name).stderr
        assert "not both" in cli.run("tree", name, "-n", team, code=2).stderr
        bob = cli.folder / "bob.kubeconfig"
        given = cli.run("kubeconfig", "-n", shop, "--expires", "10m")
        bob.write_text(given.stdout)
        assert given.stderr.startswith("user 'bob', until ")
        assert "secret" in cli.run("tree", "--kubeconfig", str(bob), environment=no_name).stdout


def test_a_certificate_for_no_tenants_namespace_is_refused(cli: Cli, uni: str) -> None:
    """E05: and the owner of the parent is warned that a subtenant is not theirs."""
    assert "does not belong to a tenant" in cli.run("kubeconfig", "-n", "default", code=2).stderr
    assert "not both" in cli.run("kubeconfig", "-n", uni, "--tenant", uni, code=2).stderr
    closed = create(cli, uni, "closed", "--mode", "subtenant", "--owner", "bob")
    said = cli.run("kubeconfig", "-n", closed, "--user", "ada", "--expires", "10m").stderr
    assert f"warning: 'ada' is not among the owners of namespace '{closed}'" in said


def test_a_name_can_be_computed_without_a_cluster(cli: Cli) -> None:
    """E07, E08: by the tenant's uid, and the home cluster's for a federated one."""
    alone = ("name", "acme", "web", "--tenant-uid", "0b8b2b0e-6d5c-4e0c-9d55-0d2f8f7c1f64")
    local = cli.run(*alone, environment=NO_CLUSTER).stdout.strip()
    federated = cli.run(
        *alone, "--cluster-uid", "5f1c9a52-9b1f-4a53-8f0e-0a9a5e3f9c11", environment=NO_CLUSTER
    ).stdout.strip()
    assert local.startswith("web-")
    assert len(local) == len(federated) == len("web-") + 16
    assert local != federated
    both = (*alone, "--tenant", "acme")
    assert "not both" in cli.run(*both, code=2, environment=NO_CLUSTER).stderr
    wrong = ("name", "acme", "web", "--tenant-uid", "acme")
    assert "--tenant-uid 'acme' must be a metadata.uid" in cli.run(*wrong, code=2, environment=NO_CLUSTER).stderr


def test_the_name_of_a_federated_subnamespace_is_that_of_its_namespace(cli: Cli, uni: str) -> None:
    """E08: without a flag, if the Subnamespace exists."""
    create(cli, uni, "wide", "--scope", "federated")
    assert child(cli, uni, "wide") == get(cli, uni, "wide")["status"]["namespace"]


def test_a_name_is_computed_for_what_is_still_to_come(cli: Cli, uni: str) -> None:
    """E07."""
    assert "no namespace 'later'" in cli.run("name", "later", "web", code=5).stderr
    assert cli.run("name", "later", "web", "--tenant", uni).stdout.startswith("web-")
    assert "does not belong to a tenant" in cli.run("name", "default", "web", code=2).stderr
    assert "metadata.name is 'Web'" in cli.run("name", uni, "Web", code=2).stderr


def test_completion_offers_namespaces_and_subnamespaces(cli: Cli, uni: str) -> None:
    completed = create(cli, uni, "completed")
    assert cli.offered(f"tenantry sub delete -n {uni} compl") == ["plain,completed"]
    assert cli.offered(f"tenantry get sub -n {uni} compl") == ["plain,completed"]
    assert cli.offered(f"tenantry get sub -n {completed[:6]}") == [f"plain,{completed}"]
    assert "plain,adjust" in cli.offered("tenantry quota ")
    assert f"plain,{uni}" in cli.offered(f"tenantry quota --cluster {NAME} un")
