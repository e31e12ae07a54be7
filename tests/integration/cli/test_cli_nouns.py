"""The verbs that every noun has, the formats of lists, and paths of namespaces, on a real control plane (H04)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from cli_command import SECONDS, Cli

TENANT = "grammar"
AGE = re.compile(r"(\d+m)?(\d+s)?")


@pytest.fixture(scope="module")
def tenant(cli: Cli) -> Iterator[str]:
    """A tenant with a subnamespace web, and staging inside."""
    cli.run("tenant", "create", TENANT, "--owner", "ada", "--quota", "cpu=8,pods=20", "--wait")
    cli.run("sub", "create", "web", "-n", TENANT, "--quota", "cpu=4,pods=10", "--wait")
    cli.run("sub", "create", "staging", "-n", f"{TENANT}/web", "--quota", "cpu=1,pods=2", "--wait")
    yield TENANT
    cli.run("tenant", "delete", TENANT, "--yes", "--no-wait")


def test_a_path_names_a_namespace(cli: Cli, tenant: str) -> None:
    """H04: wherever a namespace is named, its path is as good as the name with digits."""
    web = cli.run("name", tenant, "web").stdout.strip()
    staging = cli.run("name", f"{tenant}/web", "staging").stdout.strip()
    assert cli.run("name", web, "staging").stdout.strip() == staging
    assert cli.run("sub", "get", "staging", "-n", f"{tenant}/web", "-o", "name").stdout == (
        "subnamespace.tenantry.dev/staging\n"
    )
    assert cli.run("tree", "-n", f"{tenant}/web/staging").stdout == cli.run("tree", "-n", staging).stdout
    said = cli.run("sub", "list", "-n", f"{tenant}/shop", code=5).stderr
    assert f"namespace '{tenant}' has no subnamespace 'shop'; `tenantry sub list -n {tenant}`" in said


def test_a_path_names_an_object(cli: Cli, tenant: str) -> None:
    """H04: with a kind before it, after a noun, in verbs of a noun's own, and several at once."""
    path = f"{tenant}/web/staging"
    full = "subnamespace.tenantry.dev/staging\n"
    for words in (("get", f"sub/{path}"), ("get", "sub", path), ("sub", "get", path)):
        assert cli.run(*words, "-o", "name").stdout == full
    both = cli.run("get", f"sub/{path}", f"sub/{tenant}/web", "-o", "name").stdout
    assert both == f"{full}subnamespace.tenantry.dev/web\n"
    assert "is ready" in cli.run("wait", f"sub/{path}").stderr
    assert "staging" in cli.run("describe", f"sub/{path}").stdout
    cli.run("sub", "create", f"{tenant}/web/gone", "--wait")
    cli.run("sub", "renew", f"{tenant}/web/gone", "--for", "24h")
    assert "is gone" in cli.run("sub", "delete", f"{tenant}/web/gone", "--yes").stderr
    cli.run("request", "create", "role", "edit", "-n", f"{tenant}/web", "--as-name", "led", "--for", "8h")
    assert "led" in cli.run("request", "get", f"rreq/{tenant}/web/led").stdout
    cli.run("delete", f"rreq/{tenant}/web/led", "--yes")
    # Of a cluster, the tenant of its name is meant without a namespace.
    said = cli.run("cluster", "get", f"{tenant}/web/none", code=5).stderr
    assert f"not found: dedicatedcluster.tenantry.dev/none in '{cli.run('name', tenant, 'web').stdout.strip()}'" in said


def test_a_path_stands_for_a_tenant_of_which_a_part_is_meant(cli: Cli, tenant: str) -> None:
    """H04: `tree`, `quota`, `my` and `kubeconfig` show a part of a tenant, and `name` takes one path, too."""
    path, web = f"{tenant}/web", cli.run("name", tenant, "web").stdout.strip()
    assert cli.run("name", path).stdout.strip() == web
    assert cli.run("tree", path).stdout == cli.run("tree", "-n", web).stdout
    (found,) = cli.json("quota", path, "-o", "json")["tenants"]
    staging = cli.run("name", path, "staging").stdout.strip()
    assert [(each["namespace"], each["depth"]) for each in found["tree"]] == [(web, 0), (staging, 1)]
    assert found["hard"]["requests.cpu"] == "4"
    assert cli.json("my", path, "-o", "json")["places"][0]["namespace"] == web
    assert f"namespace: {web}" in cli.run("kubeconfig", "--tenant", path, "--user", "ada").stdout


def test_an_owner_of_a_subtenant_learns_which_name_to_use_instead_of_a_path(cli: Cli, tenant: str) -> None:
    """H04: the owner may not read the namespaces above, through which the path leads."""
    cli.run("sub", "create", "customer", "-n", tenant, "--mode", "Subtenant", "--owner", "bob", "--wait")
    own = cli.run("name", tenant, "customer").stdout.strip()
    file = cli.folder / "customer.kubeconfig"
    file.write_text(cli.run("kubeconfig", "-n", own).stdout)
    as_bob, no_cluster = ("--kubeconfig", str(file)), {"TENANTRY_NAME": ""}
    cli.await_right("bob", "get", "resourcequotas", own)
    for words in (("tree", f"{tenant}/customer"), ("sub", "create", "deep", "-n", f"{tenant}/customer")):
        said = cli.run(*words, *as_bob, code=5, environment=no_cluster).stderr
        assert f"through namespace '{tenant}'" in said
        assert "`tenantry my` shows" in said
    assert own in cli.run("my", *as_bob, environment=no_cluster).stdout
    assert own in cli.run("quota", "show", "-n", own, *as_bob, environment=no_cluster).stdout
    cli.run("sub", "delete", "customer", "-n", tenant, "--yes")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("tree", "grammar", "grammar/web"), 2, "give it alone"),
        (("quota", "show", "grammar/web", "-n", "grammar"), 2, "leave --namespace out"),
        (("diff", "grammar/web"), 2, "this command takes whole tenants"),
        (("tenant", "suspend", "grammar/web"), 2, "this command takes whole tenants"),
        (("name", "grammar"), 2, "name both PARENT and NAME"),
        (("get", "sub/grammar/web", "-n", "grammar"), 2, "leave --namespace out"),
        (("sub", "delete", "grammar/web", "-n", "grammar", "--yes"), 2, "leave --namespace out"),
        (("sub", "delete", "..", "-n", "grammar", "--yes"), 2, "has the name '..'"),
        (("sub", "list", "-n", ".."), 2, "has the name '..'"),
        (("get", "sub", "-n", "grammar?x=y"), 0, "no subnamespaces found"),
        (("sub", "delete", "grammar/web", "web", "--yes"), 2, "different namespaces"),
        (("get", "tenant/grammar/web"), 2, "tenants are in no namespace"),
        (("delete", "sub/grammar/../web", "--yes"), 2, "is no name"),
        (("delete", "sub/grammar/none/web", "--yes"), 5, "has no subnamespace 'none'"),
        (("sub", "delete", "grammar/none/web", "--yes"), 5, "has no subnamespace 'none'"),
    ],
)
def test_a_path_that_names_no_object_is_refused(
    cli: Cli, tenant: str, words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in cli.run(*words, code=code).stderr
    assert cli.run("sub", "get", "web", "-n", tenant, "-o", "name").stdout


@pytest.mark.parametrize(
    "path", ["/web", "grammar/", "grammar//web", "grammar/../kube-system", "grammar/Web", "a/b?c=d"]
)
def test_a_path_with_a_part_that_is_no_name_is_refused(cli: Cli, path: str) -> None:
    """L01: nothing of it reaches the URL of a request."""
    assert "is no name" in cli.run("sub", "list", "-n", path, code=2).stderr


def test_the_verbs_of_a_noun_that_has_none_of_its_own(cli: Cli, tenant: str) -> None:
    assert tenant in cli.run("tenant", "list").stdout
    assert cli.run("tenant", "get", tenant, "-o", "name").stdout == f"tenant.tenantry.dev/{tenant}\n"
    assert "ada" in cli.run("tenant", "describe", tenant).stdout
    assert "is ready" in cli.run("tenant", "wait", tenant).stderr
    assert "web" in cli.run("sub", "describe", "web", "-n", tenant).stdout
    assert "is ready" in cli.run("sub", "wait", "web", "-n", tenant).stderr
    cli.run("sub", "create", "gone", "-n", tenant, "--wait")
    assert "is gone" in cli.run("sub", "delete", "gone", "-n", tenant, "--yes").stderr


def test_requests_have_the_verbs_by_name_and_by_kind(cli: Cli, tenant: str) -> None:
    cli.run("request", "create", "role", "edit", "-n", tenant, "--as-name", "ask", "--reason", "why", "--for", "8h")
    for name in ("ask", "rreq/ask"):
        where = ("-n", tenant)
        assert "ask" in cli.run("request", "get", name, *where).stdout
        assert "justification: why" in cli.run("request", "describe", name, *where).stdout
    assert "rreq/ask" in cli.run("request", "list", "-n", tenant).stdout
    assert "tenantry tenant" not in cli.run("request", "wait", "ask", "-n", tenant, "--timeout", "0s", code=1).stderr
    cli.run("request", "delete", "ask", "-n", tenant, "--yes")
    assert "you see no request" in cli.run("request", "get", "ask", "-n", tenant, code=5).stderr


def ageless(table: str) -> list[list[str]]:
    """Return the words of a table without ages, which grow between two lists."""
    return [[word for word in line.split() if not AGE.fullmatch(word)] for line in table.splitlines()]


def test_old_spellings_work_and_warn(cli: Cli, tenant: str) -> None:
    new = cli.run("request", "list", "-n", tenant)
    old = cli.run("requests", "-n", tenant)
    assert (ageless(old.stdout), "is now `tenantry request list`" in old.stderr) == (ageless(new.stdout), True)
    made = cli.run("request", "role", "view", "-n", tenant, "--as-name", "old", "--because", "x", "-o", "name")
    assert made.stdout == "rolerequest.tenantry.dev/old\n"
    assert "`--because` is now `--reason`" in made.stderr
    assert "is now `tenantry request create role`" in made.stderr
    assert cli.run("nodes").stderr.count("is now") == 1
    named = cli.run("get", "tenant", tenant, "-o", "name", "--name", "cli", environment={"TENANTRY_NAME": ""})
    assert named.stdout == f"tenant.tenantry.dev/{tenant}\n"
    assert "`--name` is now `--cluster`" in named.stderr


def test_lists_have_the_formats_of_kubectl(cli: Cli, tenant: str) -> None:
    cli.run("sub", "create", "alpha", "-n", tenant, "--quota", "cpu=2", "--wait")
    where = ("sub", "list", "-n", tenant)
    names = '-o=jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}'
    assert cli.run(*where, names).stdout.split() == ["alpha", "web"]
    assert cli.run(*where, names, "--sort-by", ".spec.quota.hard.pods").stdout.split() == ["web", "alpha"]
    shown = cli.run(*where, "-o", "custom-columns=NAME:.metadata.name,PODS:.spec.quota.hard.pods", "--no-headers")
    assert [line.split() for line in shown.stdout.splitlines()] == [["alpha", "<none>"], ["web", "10"]]
    table = cli.run(*where, "--no-headers", "--sort-by", "{.spec.quota.hard.pods}").stdout
    assert [line.split()[0] for line in table.splitlines()] == ["web", "alpha"]
    assert cli.run("sub", "get", "web", "-n", tenant, "-o", "jsonpath={.metadata.name}").stdout.strip() == "web"
    said = cli.run("request", "list", "-n", tenant, "-o", "custom-columns=X:.metadata.name").stdout
    assert said.splitlines()[0] == "X"
    assert "must be HEADER:PATH" in cli.run(*where, "-o", "custom-columns=X", code=2).stderr
    cli.run("sub", "delete", "alpha", "-n", tenant, "--yes")


@contextmanager
def started(cli: Cli, *words: str) -> Generator[subprocess.Popen[str]]:
    with cli.start(*words) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_list_of_its_own_prints_what_changes(cli: Cli, tenant: str) -> None:
    """Each request once, and again after it has changed."""
    with started(cli, "request", "list", "-n", tenant, "-w", "-o", "name") as process:
        assert process.stdout is not None
        cli.run("request", "create", "role", "view", "-n", tenant, "--as-name", "watched")
        end = time.monotonic() + SECONDS
        while (line := process.stdout.readline()) != "rolerequest.tenantry.dev/watched\n":
            assert time.monotonic() < end, line
        assert cli.kubectl("annotate", "rolerequest", "watched", "-n", tenant, "seen=yes").returncode == 0
        while (line := process.stdout.readline()) != "rolerequest.tenantry.dev/watched\n":
            assert time.monotonic() < end, line
