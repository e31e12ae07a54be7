"""The self-test of isolation from the command line, on a real control plane with a real operator."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from cli_command import Cli

NO_NAME = {"TENANTRY_NAME": ""}


@pytest.fixture(scope="module")
def acme(cli: Cli) -> Iterator[str]:
    """A tenant of ada's."""
    cli.run("tenant", "create", "audited", "--owner", "ada", "--wait")
    cli.await_pods("ada", "audited")
    yield "audited"
    cli.run("delete", "tenant", "audited", "--yes", "--no-wait")


def test_failures_are_told_with_what_to_do(cli: Cli, acme: str) -> None:
    """X06: a tenant without a quota has no share; the exit code says that something failed."""
    said = cli.run("audit", acme, code=1).stdout
    assert said.startswith("tenant 'audited', namespace 'audited', as 'ada': score ")
    pod = "create a Pod of 60 containers with 30 cpu each in 'audited' (dry run)"
    assert f"Failed TNT-QTA-001 Use of processors is limited: {pod}" in said
    assert "  fix: Give the Tenant a quota of cpu" in said
    assert "\x1b" not in said


def test_json_and_the_report_say_the_same(cli: Cli, acme: str) -> None:
    """X06: what is printed is what the tenant's owner reads."""
    found = cli.json("audit", acme, "--report", "-o", "json", code=1)
    assert found["summary"]["errors"] == 0
    shown = cli.kubectl("get", "isolationreport", "latest", "-n", acme, "--as", "ada", "-o", "json")
    status = msgspec.json.decode(shown.stdout)["status"]
    assert (status["score"], status["summary"]) == (found["score"], found["summary"])
    failed = [each["id"] for each in found["checks"] if each["verdict"] == "Failed"]
    assert [each["id"] for each in status["failed"]] == failed


def test_probes_need_nodes_that_run_containers(cli: Cli, acme: str) -> None:
    """X06: simulated ones never count, and what was not tried is no pass."""
    checks = {each["id"]: each for each in cli.json("audit", acme, "--probe", "-o", "json", code=1)["checks"]}
    for id_ in ("TNT-NET-020", "TNT-NET-021", "TNT-NET-022", "TNT-POD-031", "TNT-QTA-008"):
        assert (checks[id_]["verdict"], "runs containers" in checks[id_]["message"]) == ("Skipped", True)


def test_all_tenants_are_audited_where_none_is_named(cli: Cli, acme: str) -> None:
    (run,) = [run for run in cli.json("audit", "-o", "sarif", code=1)["runs"] if run["properties"]["tenant"] == acme]
    assert len(run["results"]) == len(run["tool"]["driver"]["rules"])


def test_an_owner_audits_itself(cli: Cli, acme: str) -> None:
    """X06: with its own certificate, within its rights."""
    person = cli.folder / "ada-audits.kubeconfig"
    person.write_text(cli.run("kubeconfig", "--tenant", acme).stdout)
    found = cli.run("audit", acme, "--kubeconfig", str(person), "-o", "json", code=1, environment=NO_NAME)
    checks = {each["id"]: each["verdict"] for each in msgspec.json.decode(found.stdout)["checks"]}
    assert (checks["TNT-API-001"], checks["TNT-NODE-001"]) == ("Passed", "Passed")
    assert checks["TNT-API-019"] == "Skipped"
    for arguments, told in (((), "name yours, as in"), ((acme, "--report"), "leave out --report")):
        asked = ("audit", *arguments, "--kubeconfig", str(person))
        assert told in cli.run(*asked, code=2, environment=NO_NAME).stderr


@pytest.mark.parametrize(
    ("owner", "played"),
    [
        ("Group:audited-devs", ("tenantry-audit-member", "audited-devs")),
        ("ServiceAccount:default/audited-ci", ("system:serviceaccount:default:audited-ci",)),
    ],
)
def test_owners_of_every_kind_are_played(cli: Cli, owner: str, played: tuple[str, ...]) -> None:
    """X06: who is audited has an owner's rights, and no more."""
    name = owner.partition(":")[0].lower()
    cli.run("tenant", "create", f"of-{name}", "--owner", owner, "--wait")
    cli.await_pods(played[0], f"of-{name}", *played[1:])
    checks = {each["id"]: each["verdict"] for each in cli.json("audit", f"of-{name}", "-o", "json", code=1)["checks"]}
    cli.run("delete", "tenant", f"of-{name}", "--yes", "--no-wait")
    assert [checks[f"TNT-API-{number}"] for number in ("000", "001", "010", "021")] == ["Passed"] * 4


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("audited", "--self"), 2, "is an administrator, who may do everything"),
        (("audited", "--self", "--as", "ada"), 2, "either --as or --self"),
        (("audited", "--as-group", "devs"), 2, "--as-group needs --as"),
        (("audited", "--probe-image", "registry.example/probe:1"), 2, "--probe-image needs --probe"),
        (("-n", "kube-system"), 2, "is an administrator, who may do everything"),
        (("audited", "-n", "kube-system"), 2, "does not belong to the tenant 'audited'"),
        (("no-such-tenant",), 5, '"no-such-tenant" not found; `tenantry get tenants` lists all'),
        (("-n", "no-such-namespace", "--as", "ada"), 5, "not found; `tenantry tree` shows the namespaces"),
    ],
)
@pytest.mark.usefixtures("acme")
def test_wrong_input_is_told(cli: Cli, arguments: tuple[str, ...], code: int, told: str) -> None:
    assert told in cli.run("audit", *arguments, code=code).stderr
