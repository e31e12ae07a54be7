"""Quotas of trees from the command line, on a real control plane with a real operator."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from cli_command import PATIENCE, SECONDS, Cli


@contextmanager
def tree(cli: Cli, name: str) -> Generator[dict[str, str]]:
    """A tenant of 10 CPUs, a workspace of 4 in it, and a subtenant of 1 in that; their namespaces by name."""
    cli.run("tenant", "create", name, "--owner", "ada", "--quota", "cpu=10,memory=20Gi,pods=50", "--wait")
    cli.run("sub", "create", "web", "-n", name, "--quota", "cpu=4,memory=8Gi,pods=20", "--wait")
    web = cli.run("name", name, "web").stdout.strip()
    cli.run("sub", "create", "shop", "-n", web, "--mode", "subtenant", "--owner", "bob", "--quota", "cpu=1", "--wait")
    shop = cli.run("name", web, "shop").stdout.strip()
    # The status of the whole tree follows a moment after the shares, and before it is ready tells of some on their way.
    path = f'{{.status.tree[?(@.namespace=="{shop}")].assigned.requests\\.cpu}}'
    told = cli.kubectl("wait", "trq", name, f"--for=jsonpath={path}=1", PATIENCE)
    assert told.returncode == 0, told.stderr
    cli.run("wait", "trq", name)
    try:
        yield {name: name, "web": web, "shop": shop}
    finally:
        cli.run("delete", "tenant", name, "--yes", "--no-wait")


@pytest.fixture(scope="module")
def shared(cli: Cli) -> Iterator[dict[str, str]]:
    """A tree that tests leave as it is."""
    with tree(cli, "quotas") as namespaces:
        yield namespaces


def test_the_tree_has_bars_of_own_shares(cli: Cli, shared: dict[str, str]) -> None:
    """E09: what a namespace holds itself is what its children do not."""
    lines = cli.run("tree", "quotas").stdout.splitlines()
    assert [line.rpartition("]")[2].split("%")[0].split() for line in lines if "requests.cpu" in line] == [
        ["0", "/", "6", "0"],
        ["0", "/", "3", "0"],
        ["0", "/", "1", "0"],
    ]
    assert any(line.endswith(f"shop  Subtenant  {shared['shop']}  Active") for line in lines)


def test_the_table_has_what_is_assigned_used_and_free(cli: Cli, shared: dict[str, str]) -> None:
    """E09: of each namespace with all that is below it."""
    lines = [line.split() for line in cli.run("quota", "quotas").stdout.splitlines()]
    cpu = [line[-5:] for line in lines if "requests.cpu" in line]
    assert cpu == [
        ["requests.cpu", "10", "0", "10", "6"],
        ["requests.cpu", "4", "0", "4", "3"],
        ["requests.cpu", "1", "0", "1", "1"],
    ]
    (view,) = cli.json("quota", "quotas", "-o", "json")["tenants"]
    assert [each["namespace"] for each in view["tree"]] == [shared["quotas"], shared["web"], shared["shop"]]
    assert view["tree"][1]["ownFree"]["requests.cpu"] == "3"
    assert "not found" in cli.run("quota", "absent", code=5).stderr


def test_an_explanation_can_be_carried_out(cli: Cli) -> None:
    """E09: what it says to raise makes it fit; the exit code says whether it does already."""
    with tree(cli, "explained"):
        asked = ("explain", "quota", "explained/shop", "--want", "cpu=5", "-o", "json")
        answer = cli.json(*asked, code=1)["keys"][0]
        assert (answer["fits"], answer["fitsNow"], answer["couldFit"]) == (False, "1", "10")
        for each in answer["raises"]:
            patch = f'{{"spec":{{"quota":{{"hard":{{"{each["key"]}":"{each["after"]}"}}}}}}}}'
            asked_for = ("patch", "sub", each["name"], "-n", each["namespace"], "--type=merge", "-p", patch)
            end = time.monotonic() + SECONDS
            while (done := cli.kubectl(*asked_for)).returncode:
                # What the parent was given just now, the API server's policy learns of a moment later.
                assert "can give" in done.stderr, done.stderr
                assert time.monotonic() < end, done.stderr
            cli.run("wait", "sub", each["name"], "-n", each["namespace"])
        assert cli.json(*asked)["keys"][0]["fits"] is True


def test_an_explanation_for_people(cli: Cli, shared: dict[str, str]) -> None:
    """E09, E11: what fits where, what nothing limits, and what the tenant itself lacks."""
    text = cli.run("explain", "quota", f"quotas/{shared['web']}", "--want", "pods=5,services=1").stdout
    assert f"pods: 5 fits into '{shared['web']}', which has 15 free" in text, "5 are the default of 'shop'"
    assert "services: 1 fits: the tenant's quota does not limit it" in text
    top = cli.run("explain", "quota", "quotas", "--want", "memory=13Gi", code=1).stdout
    assert "spec.quota.hard[memory] of Tenant 'quotas' from 20Gi to 21Gi" in top


def test_an_owner_is_told_what_to_ask_for(cli: Cli, shared: dict[str, str]) -> None:
    """E05, E09: with no more than they may see; a subtenant's owner sees nothing of the parent."""

    def asked(namespace: str) -> list[str]:
        file = cli.folder / "asking.kubeconfig"
        file.write_text(cli.run("kubeconfig", "-n", namespace, "--expires", "10m").stdout)
        mine = ("--kubeconfig", str(file))
        where = f"quotas/{namespace}"
        done = cli.run("explain", "quota", where, "--want", "cpu=20", *mine, code=1, environment={"TENANTRY_NAME": ""})
        return done.stdout.splitlines()

    lines = asked(shared["web"])
    assert [line.split()[0] for line in lines if "requests.cpu  " in line] == [shared["web"], shared["quotas"]]
    assert lines[-2:] == [
        "  spec.quota.hard[requests.cpu] of Tenant 'quotas' by 11",
        "  spec.quota.hard[cpu] of Subnamespace 'web' in 'quotas' from 4 to 21",
    ]
    web = shared["web"]
    assert asked(shared["shop"])[-1] == f"  spec.quota.hard[requests.cpu] of Subnamespace 'shop' in '{web}' by 19"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("quotas/absent", "--want", "cpu=1"), 5, "has no namespace 'absent'; `tenantry tree quotas` shows those"),
        (("absent/x", "--want", "cpu=1"), 5, "not found"),
        (("quotas/", "--want", "cpu=1"), 2, "must be TENANT/NAMESPACE"),
        (("quotas", "--want", "cores=1"), 2, "quota key 'cores' is none that Kubernetes counts"),
        (("quotas", "--want", "cpu"), 2, "--want 'cpu': 'cpu' must be KEY=QUANTITY"),
        (("quotas",), 2, "Missing option '--want'"),
    ],
)
def test_bad_questions(cli: Cli, shared: dict[str, str], arguments: tuple[str, ...], code: int, said: str) -> None:
    """E15."""
    assert shared
    assert said in cli.run("explain", "quota", *arguments, code=code).stderr


def _hold(cli: Cli, cpu: str) -> None:
    """Let the workspace hold this share of 'adjusted'."""
    patch = f'{{"spec": {{"quota": {{"hard": {{"cpu": "{cpu}"}}}}}}}}'
    done = cli.kubectl("patch", "subnamespace", "web", "-n", "adjusted", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr
    cli.run("wait", "subnamespace", "web", "-n", "adjusted")


def test_a_quota_is_adjusted_for_a_while(cli: Cli) -> None:
    """E10: added, replaced under the same name, taken back; the whole tree has it."""
    adjust = ("quota", "adjust", "adjusted", "sale", "--wait")

    def whole() -> str:
        return cli.json("quota", "adjusted", "-o", "json")["tenants"][0]["hard"]["requests.cpu"]

    with tree(cli, "adjusted"):
        made = cli.run(*adjust, "--by", "cpu=+2,memory=-1Gi", "--for", "24h").stderr
        assert "adjusted by 'sale': requests.cpu=+2,requests.memory=-1Gi until 20" in made
        assert whole() == "12"
        assert "sale" in cli.run("quota", "adjusted").stdout
        again = cli.run(*adjust, "--by", "cpu=+3", "--for", "never").stderr
        assert "adjusted anew by 'sale': requests.cpu=+3\n" in again
        assert whole() == "13"
        cli.run("quota", "unadjust", "adjusted", "sale", "--wait")
        assert whole() == "10"
        cli.run(*adjust, "--by", "cpu=+3", "--for", "never")
        _hold(cli, "12")
        # Only a person can make it fit, so the command does not use its deadline.
        stalled = cli.run("quota", "unadjust", "adjusted", "sale", "--wait", code=1).stderr
        assert "adjusted will not be ready until a person acts: " in stalled
        said = cli.run("quota", "unadjust", "adjusted", "sale", code=2).stderr
        assert "tenant 'adjusted' has no adjustment 'sale': it has none" in said


def test_an_adjustment_below_what_subnamespaces_hold_is_refused(cli: Cli, shared: dict[str, str]) -> None:
    """E10, E15: at once, with what would fit; nothing is changed."""
    said = cli.run("quota", "adjust", "quotas", "cut", "--by", "cpu=-7", "--for", "1h", code=2).stderr
    assert "requests.cpu: subnamespaces hold 4 of 10, and 3 would be left: at most requests.cpu=-6 fits" in said
    assert f"'{shared['web']}' has 4" in said
    assert not cli.json("get", "trq", "quotas", "-o", "json")["spec"].get("adjustments")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("sale", "--by", "services=1", "--for", "1h"),
            "'services' is not in the quota of tenant 'quotas' (it has pods",
        ),
        (("sale", "--by", "cores=1", "--for", "1h"), "has a wrong key: quota key 'cores'"),
        (("sale", "--by", "cpu=lots", "--for", "1h"), "adjustment.resources[cpu] must be a quantity"),
        (("sale", "--by", "cpu=1", "--for", "soon"), "--for 'soon' must be a duration"),
        (("a" * 64, "--by", "cpu=1", "--for", "1h"), "adjustment.name must be 1 to 63 characters long"),
        (("sale", "--by", "cpu=1"), "Missing option '--for'"),
    ],
)
def test_wrong_adjustments(cli: Cli, shared: dict[str, str], arguments: tuple[str, ...], said: str) -> None:
    """E10, E15: exit code 2, nothing changed."""
    assert said in cli.run("quota", "adjust", shared["quotas"], *arguments, code=2).stderr


def test_a_quota_has_a_page(cli: Cli, shared: dict[str, str]) -> None:
    page = cli.run("describe", "trq", shared["quotas"]).stdout
    assert "Namespaces:       3" in page
    assert "requests.cpu      10         0" in page
    web = cli.run("describe", "sub", "web", "-n", "quotas").stdout
    assert "Subnamespaces inside:         1 (shop)" in web
