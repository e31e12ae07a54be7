"""The verbs for people, as a user runs them, on a real control plane with a real operator."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_command import NAME, PATIENCE, SECONDS, Cli

ACME = """\
apiVersion: tenantry.dev/v1alpha1
kind: Tenant
metadata: {name: %s}
spec:
  owners: [{kind: User, name: ada}, {kind: Group, name: devs}]
  quota: {hard: {cpu: %s, memory: 8Gi, pods: 10}}
"""


@contextmanager
def tenant(cli: Cli, name: str, *flags: str) -> Generator[str]:
    """A tenant that is ready, and gone afterwards."""
    cli.run("tenant", "create", name, "--owner", "ada", "--wait", *flags)
    try:
        yield name
    finally:
        cli.run("delete", "tenant", name, "--yes", "--no-wait", code=0)


@pytest.fixture(scope="module")
def acme(cli: Cli) -> Iterator[str]:
    """A tenant that tests only look at."""
    flags = ("--owner", "Group:devs", "--quota", "cpu=4,memory=8Gi", "--quota", "pods=10")
    with tenant(cli, "acme", *flags) as name:
        # Kubernetes counts by a quota, and lets owners in, a moment after they were written.
        counted = ("wait", "resourcequota", "tenantry-quota", "-n", name, "--for=jsonpath={.status.hard.pods}=10")
        told = cli.kubectl(*counted, PATIENCE)
        assert told.returncode == 0, told.stderr
        cli.await_right("ada", "create", "configmaps", name)
        yield name


def test_a_tenant_lives_and_goes(cli: Cli) -> None:
    """E01: made, ready, printed, deleted with its namespace."""
    made = cli.run("tenant", "create", "living", "--owner", "ada", "--quota", "pods=5", "--wait", "-o", "name")
    assert made.stdout == "tenant.tenantry.dev/living\n"
    assert made.stderr.splitlines() == ["tenant.tenantry.dev/living created", "tenant.tenantry.dev/living is ready"]
    assert cli.kubectl("get", "namespace", "living").returncode == 0
    gone = cli.run("delete", "tenant", "living", "--yes")
    assert gone.stderr.splitlines() == [
        "tenant.tenantry.dev/living: namespace 'living' with 0 pods and everything else in it",
        "tenant.tenantry.dev/living is gone",
    ]
    assert "NotFound" in cli.kubectl("get", "namespace", "living").stderr
    cli.run("wait", "tenant/living", "--for", "deleted")


def test_what_is_made_can_be_kept_in_a_file_first(cli: Cli) -> None:
    """The dry run needs no cluster, and its output is what apply takes."""
    owner = ("--owner", "ServiceAccount:ci/deployer")
    flags = ("--quota", "cpu=4", "--network", "open", "--runtime", "sandboxed", "--dry-run")
    text = cli.run("tenant", "create", "filed", *owner, *flags).stdout
    assert "network: Open" in text
    assert "runtime: Sandboxed" in text
    applied = cli.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
    assert "tenant.tenantry.dev/filed created (server dry run)" in applied.stdout, applied.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kube-x", "--owner", "ada"), "metadata.name is 'kube-x'; it must not be default nor begin with kube-"),
        (("A.b", "--owner", "ada"), "metadata.name is 'A.b'; it must be a DNS label"),
        (("x", "--owner", ""), "--owner '' must have a name"),
        (("x", "--owner", "system:admin"), "spec.owners[0].name is 'system:admin'; it must not begin with system:"),
        (("x", "--owner", "ada", "--quota", "cpu=lots"), "spec.quota.hard[cpu] must be a quantity: 'lots'"),
        (("x", "--owner", "ada", "--quota", "pods=-1"), "spec.quota.hard[pods] is '-1'; it must not be negative"),
        (("x", "--owner", "ada", "--quota", "gpu=1"), "spec.quota.hard has a wrong key: quota key 'gpu'"),
        (("x", "--owner", "ada", "--network", "Closed"), "'Closed' is not one of 'open', 'baseline', 'isolated'"),
        (("x",), "Missing option '--owner'"),
        (("default2", "--owner", "ada", "--timeout", "soon"), "'soon' must be a duration"),
        (("kube", "--owner", "ada", "extra"), "unexpected extra argument"),
    ],
)
def test_bad_input_names_the_field_and_the_fix(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    """E15: before the server is asked, exit code 2, nothing made."""
    assert said in cli.run("tenant", "create", *arguments, code=2).stderr


def test_a_namespace_that_is_there_is_not_taken_over(cli: Cli) -> None:
    """E01, E15: the name collides, nothing is made."""
    cli.kubectl("create", "namespace", "taken")
    said = cli.run("tenant", "create", "taken", "--owner", "ada", code=2).stderr
    assert "metadata.name: the namespace 'taken' exists already" in said
    assert "choose another name" in said
    assert "delete" not in said
    assert "NotFound" in cli.kubectl("get", "tenant", "taken").stderr


def test_a_tenant_that_is_there_is_said_to_be(cli: Cli, acme: str) -> None:
    said = cli.run("tenant", "create", acme, "--owner", "ada", code=2).stderr
    assert f"metadata.name: the tenant '{acme}' exists already; choose another name" in said
    assert "delete" not in said


def test_a_description_leaves_out_events_of_an_earlier_object(cli: Cli, acme: str) -> None:
    """E15: an earlier tenant of the same name has another uid."""
    uid = cli.json("get", "tenant", acme, "-o", "json")["metadata"]["uid"]
    for name, about, note in (("earlier", "0b8b2b0e-6d5c-4e0c-9d55-0d2f8f7c1f64", "of old"), ("ours", uid, "of now")):
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{acme}.{name}", "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal",
            "reason": "Corrected",
            "action": "Test",
            "note": note,
            "regarding": {"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "name": acme, "uid": about},
            "reportingController": "tests",
            "reportingInstance": "tests",
        }
        made = cli.kubectl("create", "-f", "-", stdin=json.dumps(event))
        assert made.returncode == 0, made.stderr
    page = cli.run("describe", "tenant", acme).stdout
    assert "of now" in page
    assert "of old" not in page


def test_tables_are_the_servers(cli: Cli, acme: str) -> None:
    """The columns are those of the CRD, and kubectl shows the same."""
    ours = cli.run("get", "tenants", acme).stdout.splitlines()
    theirs = cli.kubectl("get", "tenant", acme).stdout.splitlines()
    assert ours[0].split() == theirs[0].split()
    # kubectl leaves a cell without a value blank.
    cells = [cell for cell in ours[1].split() if cell != "<none>"]
    assert cells[:4] == theirs[1].split()[:4] == [acme, "True", "Established", "Isolated"]
    wide = cli.run("get", "tnt", "-o", "wide").stdout
    assert "NAMESPACE" in wide
    assert "namespace, rights, limits and isolation are in place" in wide


def test_other_forms(cli: Cli, acme: str) -> None:
    one = cli.json("get", f"tenant/{acme}", "-o", "json")
    assert (one["kind"], one["metadata"]["name"]) == ("Tenant", acme)
    many = cli.json("get", "tenants", "-o", "json")
    assert many["kind"] == "List"
    assert acme in [item["metadata"]["name"] for item in many["items"]]
    assert f"tenant.tenantry.dev/{acme}\n" in cli.run("get", "-o", "name").stdout
    text = cli.run("get", "tenant", acme, "-o", "yaml").stdout
    assert cli.run("diff", "-f", "-", stdin=text).stdout == ""


def test_what_is_not_there_is_named(cli: Cli, acme: str) -> None:
    done = cli.run("get", "tenant", acme, "absent", "missing", code=5)
    assert acme in done.stdout
    assert "not found: tenant.tenantry.dev/absent, tenant.tenantry.dev/missing" in done.stderr
    assert "tenant.tenantry.dev/absent does not exist" in cli.run("wait", "tenant/absent", code=5).stderr
    assert "tenant.tenantry.dev/absent does not exist" in cli.run("delete", "tenant/absent", "--yes", code=5).stderr


def test_a_watch_of_a_name_that_does_not_exist_ends(cli: Cli) -> None:
    """As kubectl does: it would otherwise wait for an object that a typing error names."""
    assert "not found: tenant.tenantry.dev/absent" in cli.run("get", "tenants", "absent", "-w", code=5).stderr


def test_a_watch_prints_changes(cli: Cli) -> None:
    """The first lines are what is there; then a line for each change, as it happens."""
    with tenant(cli, "watched") as name, cli.start("get", "tenants", name, "-w") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["NAME", "READY", "REASON"]
        before = watching.stdout.readline().split()[:4]
        assert before == [name, "True", "Established", "<none>"]
        cli.run("tenant", "suspend", name)
        # Its operator may write once more what no column shows.
        lines = (line.split()[:4] for line in iter(watching.stdout.readline, ""))
        changed = (cells for cells in lines if cells != before)
        assert next(cells for cells in changed if cells[3] != "False") == [name, "True", "Established", "True"]
        watching.send_signal(2)
        assert watching.wait(SECONDS) == 130


def test_suspend_and_resume(cli: Cli) -> None:
    """E02: and all verbs show it."""
    with tenant(cli, "paused") as name:
        cli.run("tenant", "suspend", name, "--wait")
        assert "Suspended" in cli.run("tree", name).stdout
        assert "none while suspended" not in cli.run("describe", "tenant", name).stdout
        assert "is suspended already" in cli.run("tenant", "suspend", name).stderr
        assert "is suspended: no user has access until it is resumed" in cli.run("kubeconfig", "--tenant", name).stderr
        cli.run("tenant", "resume", name, "--wait")
        assert "Suspended" not in cli.run("tree", name).stdout


def test_the_tree(cli: Cli, acme: str) -> None:
    lines = cli.run("tree", acme).stdout.splitlines()
    assert lines[0] == "acme  Ready  User:ada, Group:devs  Isolated"
    assert [line.split()[1] for line in lines[2:]] == ["pods", "requests.cpu", "requests.memory"]
    view = cli.json("tree", acme, "-o", "json")["tenants"][0]
    assert view["ready"] is True
    assert view["namespaces"][0]["quota"][0] == {"key": "pods", "used": "0", "hard": "10"}


def test_the_tree_on_a_terminal_without_lines(cli: Cli, acme: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenantry", "tree", acme],
        env=cli.environment({"PYTHONIOENCODING": "ascii"}),
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    assert b"`-- namespace acme  Active" in done.stdout


def test_everything_about_a_tenant_on_one_page(cli: Cli, acme: str) -> None:
    cli.kubectl("-n", acme, "apply", "-f", str(_foreign_policy(cli)))
    page = cli.run("describe", "tenant", acme).stdout
    for line in (
        "Name:                    acme",
        "  acme  Active, 0 pods",
        "  Group ada".replace("Group ada", "Group devs   ClusterRole tenantry-owner   tenantry-owner"),
        "  requests.cpu      0      4      tenantry-quota",
    ):
        assert line in page, page
    assert "theirs" in page


def _foreign_policy(cli: Cli) -> Path:
    # Ports by name and peers by address: what owners may write is more than what Tenantry writes.
    file = cli.folder / "policy.yaml"
    file.write_text("""\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: theirs}
spec:
  podSelector: {}
  ingress: [{ports: [{port: http}], from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]
""")
    return file


def test_waiting_ends_when_time_is_up_and_says_why(cli: Cli) -> None:
    """E01: a foreign namespace keeps a tenant from being ready; the wait reports it."""
    cli.kubectl("create", "namespace", "foreign")
    applied = cli.folder / "foreign.yaml"
    applied.write_text(ACME % ("foreign", 1))
    cli.kubectl("apply", "-f", str(applied))
    try:
        cli.run("wait", "tenant", "foreign", "--for", "condition=Stalled")
        # Long enough to hear of it once.
        done = cli.run("wait", "tenant", "foreign", "--timeout", "5s", code=1)
        assert done.stderr.startswith("tenantry: not ready after 5s:\n  tenant.tenantry.dev/foreign: NamespaceExists: ")
        drift = cli.run("diff", "foreign", code=1)
        assert "NamespaceExists" in drift.stderr
        page = cli.run("describe", "tenant", "foreign").stdout
        assert "foreign does not belong to this tenant" in page
    finally:
        said = cli.run("delete", "tenant", "foreign", "--yes", "--no-wait").stderr
    assert "the namespace 'foreign' does not belong to the tenant and stays" in said
    assert cli.kubectl("get", "namespace", "foreign").returncode == 0


def test_all_are_waited_for(cli: Cli, acme: str) -> None:
    with tenant(cli, "another"):
        # Those of other tests too, which go: with all that is in them.
        done = cli.run("wait", "tenants", "--all", "--for", "condition=Suspended=False", "--timeout", "4m")
    assert f"tenant.tenantry.dev/{acme} condition met: Suspended=False" in done.stderr
    assert "tenant.tenantry.dev/another condition met: Suspended=False" in done.stderr


def test_deletion_asks(cli: Cli) -> None:
    """Nothing goes without a yes: not from a script, and not when a person says no."""
    with tenant(cli, "dear") as name:
        said = cli.run("delete", "tenant", name, code=2).stderr
        assert "stdin is not a terminal; confirm with --yes" in said
        code, text = cli.in_terminal("n\n", "delete", "tenant", name)
        assert code == 1
        assert "namespace 'dear' with 0 pods" in text
        assert "nothing was deleted" in text
        assert cli.kubectl("get", "tenant", name).returncode == 0


def test_a_difference_is_shown_and_not_applied(cli: Cli, acme: str) -> None:
    """The operator's own plan, without the write."""
    done = cli.run("diff", "-f", "-", stdin=ACME % (acme, 5), code=1)
    assert "-    requests.cpu: '4'" in done.stdout
    assert "+    requests.cpu: '5'" in done.stdout
    assert cli.run("diff", acme).stdout == ""
    found = cli.json("diff", acme, "-o", "json")
    assert found == [{"tenant": acme, "changes": [], "blocked": []}]


def test_a_difference_for_a_new_tenant_is_everything(cli: Cli) -> None:
    made = cli.run("diff", "-f", "-", stdin=ACME % ("brandnew", 5), code=1).stdout
    titles = [line.removeprefix("+++ would-be/") for line in made.splitlines() if line.startswith("+++")]
    assert titles == [
        "Tenant/brandnew",
        "Namespace/brandnew",
        "ResourceQuota/brandnew/tenantry-quota",
        "LimitRange/brandnew/tenantry-limits",
        "NetworkPolicy/brandnew/tenantry-isolation",
        "ResourceQuota/brandnew/tenantry-counts",
        "RoleBinding/brandnew/tenantry-owner",
    ]
    assert "NotFound" in cli.kubectl("get", "tenant", "brandnew").stderr


def test_a_difference_in_a_foreign_namespace_is_blocked(cli: Cli) -> None:
    cli.kubectl("create", "namespace", "theirs")
    done = cli.run("diff", "-f", "-", stdin=ACME % ("theirs", 5), code=1)
    assert "Namespace/theirs" not in done.stdout
    assert "tenant 'theirs': NamespaceExists" in done.stderr


def test_a_suspension_shows_whose_rights_it_takes(cli: Cli) -> None:
    """E02: other people's bindings too."""
    with tenant(cli, "shown") as name:
        binding = ("create", "rolebinding", "friends", "--clusterrole=view", "--user=bob")
        assert cli.made("-n", name, *binding).returncode == 0
        text = cli.run("get", "tenant", name, "-o", "yaml").stdout.replace("suspended: false", "suspended: true")
        made = cli.run("diff", "-f", "-", stdin=text, code=1).stdout
    assert "+++ would-be/RoleBinding/shown/friends" in made
    assert "-  name: bob" in made


def test_rendering_needs_no_cluster(cli: Cli) -> None:
    alone = {"TENANTRY_HOME": str(cli.folder), "TENANTRY_NAME": "", "KUBECONFIG": "/nonexistent"}
    text = cli.run("render", "-f", "-", stdin=ACME % ("acme", 4), environment=alone).stdout
    assert text.count("\n---\n") == 5
    assert "requests.cpu: '4'" in text
    done = cli.run("render", "-f", "-", stdin=ACME % ("acme", 4) + "---\n" + ACME % ("kube-x", "-1"), code=2)
    assert done.stdout == ""
    assert "stdin, document 2: metadata.name is 'kube-x'; it must not" in done.stderr
    assert "stdin, document 2: spec.quota.hard[cpu] is -1; it must not be negative" in done.stderr


def test_a_certificate_makes_a_person_the_tenant(cli: Cli, acme: str) -> None:
    """E01: an owner writes in the tenant's namespace and reads no other; the request leaves nothing behind."""
    file = cli.folder / "ada.kubeconfig"
    file.write_text(cli.run("kubeconfig", "--tenant", acme, "--expires", "10m").stdout)
    assert cli.kubectl("create", "configmap", "mine", kubeconfig=file).returncode == 0
    assert cli.kubectl("get", "configmap", "mine", kubeconfig=file).returncode == 0
    elsewhere = cli.kubectl("get", "configmaps", "--namespace", "default", kubeconfig=file)
    assert 'User "ada" cannot list resource "configmaps"' in elsewhere.stderr
    assert "Forbidden" in cli.kubectl("get", "tenants", kubeconfig=file).stderr
    assert "No resources found" in cli.kubectl("get", "csr").stderr


def test_a_certificate_for_a_user_who_is_no_owner_gives_a_warning(cli: Cli, acme: str) -> None:
    said = cli.run("kubeconfig", "--tenant", acme, "--user", "bob").stderr
    assert "warning: 'bob' is not among the owners of tenant 'acme'" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--user", "system:admin"), "--user 'system:admin' must not begin with 'system:'"),
        (("--user", "tenantry:operator"), "--user 'tenantry:operator' must not begin with 'tenantry:'"),
        (("--user", "a" * 65), "must be at most 64 characters long"),
        (("--user", ""), "--user must not be empty"),
        (("--expires", "9m"), "--expires 9m must be between 10m and 7d"),
        (("--expires", "8d"), "--expires 8d must be between 10m and 7d"),
    ],
)
def test_certificates_for_reserved_names_are_refused(cli: Cli, acme: str, flags: tuple[str, ...], said: str) -> None:
    """Certificates cannot be taken back."""
    assert said in cli.run("kubeconfig", "--tenant", acme, *flags, code=2).stderr


def test_completion_offers_kinds_and_names(cli: Cli, acme: str) -> None:
    assert cli.offered("tenantry del") == ["plain,delete"]
    assert "plain,tenants" in cli.offered("tenantry get ")
    assert cli.offered(f"tenantry get tenant {acme[:2]}") == [f"plain,{acme}"]
    assert cli.offered(f"tenantry wait tenant/{acme[:2]}") == [f"plain,tenant/{acme}"]
    assert cli.offered(f"tenantry tree --cluster {NAME} ac") == ["plain,acme"]
    assert cli.completed("tenantry tree --cluster nosuch ac") == []


def test_kubectl_completes_too(cli: Cli, acme: str) -> None:
    code = "import sys; from tenantry.cli.completion.script import complete_for_kubectl; complete_for_kubectl()"
    lines: list[str] = []
    end = time.monotonic() + SECONDS
    # A cluster that does not answer in a second offers nothing.
    while len(lines) <= 1:
        assert time.monotonic() < end, lines
        done = subprocess.run(
            [sys.executable, "-c", code, "get", "tenants", ""],
            env=cli.environment({"TENANTRY_NAME": "", "KUBECONFIG": str(cli.admin_kubeconfig)}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        lines = done.stdout.splitlines()
    assert acme in lines
    assert lines[-1] == ":4"


def test_a_cluster_without_tenantry_is_told_from_one_without_tenants(cli: Cli) -> None:
    nowhere = cli.folder / "nowhere.kubeconfig"
    # The API server listens on one address only.
    nowhere.write_text(cli.admin_kubeconfig.read_text().replace("https://127.0.0.1:", "https://127.0.0.2:"))
    environment = {"TENANTRY_NAME": ""}
    done = cli.run("get", "tenants", "--kubeconfig", str(nowhere), code=5, environment=environment)
    assert "cannot be reached" in done.stderr
    assert "--kubeconfig" in cli.run("get", "--kubeconfig", "/no/such", code=3, environment=environment).stderr


def test_owners_are_added_and_have_their_rights_when_the_command_returns(cli: Cli) -> None:
    """B03: nothing is written for those that it has, and a wrong name changes nothing."""
    cli.run("tenant", "create", "growing", "--owner", "ada", "--wait")
    told = "tenant.tenantry.dev/growing"
    said = cli.run("tenant", "add-owner", "growing", "ada", "Group:crew", "bob", "--wait").stderr
    assert said.splitlines() == [
        f"User:ada is an owner of {told} already",
        f"Group:crew added to the owners of {told}",
        f"User:bob added to the owners of {told}",
    ]
    cli.kubectl("get", "pods", "-n", "growing", "--as", "bob")
    before = cli.json("get", "tenant", "growing", "-o", "json")
    cli.run("tenant", "add-owner", "growing", "bob")
    assert "system:" in cli.run("tenant", "add-owner", "growing", "carl", "system:admin", code=2).stderr
    assert (
        cli.json("get", "tenant", "growing", "-o", "json")["metadata"]["resourceVersion"]
        == (before["metadata"]["resourceVersion"])
    )
    cli.run("sub", "create", "team", "-n", "growing", "--wait")
    cli.run("sub", "add-owner", "team", "carl", "-n", "growing", "--wait")
    space = cli.json("get", "sub", "team", "-n", "growing", "-o", "json")["status"]["namespace"]
    cli.kubectl("get", "pods", "-n", space, "--as", "carl")
