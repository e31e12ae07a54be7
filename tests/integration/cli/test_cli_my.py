"""What users see of their own, and that they see nothing of other tenants, on a real control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_command import Cli, Said

NO_NAME = {"TENANTRY_NAME": ""}
MINE, OTHERS = "minegarden", "othersorchard"


class Users:
    """Ada and bob own a tenant each, cid owns a Subtenant in that of ada, dora has nothing, and eve asks for a tenant.

    Args:
        cli: The command.
    """

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        cli.run("tenant", "create", MINE, "--owner", "ada", "--quota", "cpu=10,pods=50", "--wait")
        cli.run("tenant", "create", OTHERS, "--owner", "bob", "--quota", "cpu=7", "--wait")
        cli.run("sub", "create", "shed", "-n", MINE, "--mode", "subtenant", "--owner", "cid", "--wait")
        self.shed = cli.run("name", MINE, "shed").stdout.strip()
        places = {"ada": MINE, "bob": OTHERS, "cid": self.shed, "dora": OTHERS, "eve": OTHERS}
        self._files = {user: self._file(user, where) for user, where in places.items()}
        for user, where in places.items():
            if user not in {"dora", "eve"}:
                cli.await_right(user, "list", "subnamespaces.tenantry.dev", where)

    def run(self, user: str, *words: str, code: int = 0) -> Said:
        """Run a verb with a user's own kubeconfig, whose context has the namespace of the user."""
        mine = ("--kubeconfig", str(self._files[user]))
        return self.cli.run(*words, *mine, code=code, environment=NO_NAME)

    def _file(self, user: str, namespace: str) -> Path:
        file = self.cli.folder / f"my-{user}.kubeconfig"
        file.write_text(self.cli.run("kubeconfig", "-n", namespace, "--user", user).stdout)
        return file


@pytest.fixture(scope="module")
def users(cli: Cli) -> Iterator[Users]:
    """The users, for all tests of this file."""
    yield Users(cli)
    cli.run("delete", "tenant", MINE, OTHERS, "--yes", "--no-wait")


def test_an_owner_sees_tenant_quota_requests_and_rights_in_one_screen(users: Users) -> None:
    asked = ("request", "create", "role", "edit", "--kind", "clusterrole", "--as-name", "tonight", "-n", MINE)
    users.run("ada", *asked)
    shown = users.run("ada", "my").stdout
    lines = shown.splitlines()
    assert lines[0].startswith("user ada, groups ")
    assert any(line.startswith(f"{MINE}  Ready  User:ada") for line in lines)
    # The Subtenant has a default share of the 10.
    assert any("requests.cpu" in line and "/ 7500m" in line for line in lines)
    assert "shed  Subtenant" in shown
    (may,) = [line for line in lines if line.startswith(f"in {MINE} you may: ")]
    assert "run pods" in may
    assert "create subnamespaces" in may
    (row,) = [line.split() for line in lines if line.startswith("rreq/tonight")]
    assert "Pending" in row
    found = users.cli.json("my", "--kubeconfig", str(users.cli.folder / "my-ada.kubeconfig"), "-o", "json")
    assert [each["namespace"] for each in found["places"]] == [MINE]


def test_a_user_sees_nothing_of_other_tenants(users: Users) -> None:
    """L01: neither by leaving the name out, nor by naming a tenant or a namespace of others, nor by the context."""
    for words in (("my",), ("my", "-o", "json")):
        said = users.run("ada", *words)
        assert OTHERS not in said.stdout + said.stderr
        assert "bob" not in said.stdout + said.stderr
    for user, other in (("ada", OTHERS), ("bob", MINE), ("bob", users.shed), ("cid", MINE), ("dora", MINE)):
        for words in (("my", other), ("my", "-n", other)):
            said = users.run(user, *words, code=5)
            assert said.stdout == ""
            assert "or it does not exist" in said.stderr
    absent = users.run("bob", "my", "absent", code=5).stderr
    assert absent.replace("absent", MINE) == users.run("bob", "my", MINE, code=5).stderr


def test_the_owner_of_a_subtenant_sees_it_and_nothing_above(users: Users) -> None:
    said = users.run("cid", "my")
    assert f"tenant {MINE}, of which you may read:" in said.stdout
    assert users.shed in said.stdout
    assert "ada" not in said.stdout
    assert "7500m" not in said.stdout


def test_a_user_without_anything_gets_the_next_command(users: Users) -> None:
    """The context of dora names a tenant of others."""
    said = users.run("dora", "my", code=1)
    assert said.stdout == ""
    assert "no tenant of 'dora' is found" in said.stderr
    assert "`tenantry request create tenant NAME" in said.stderr
    assert OTHERS not in said.stderr


def test_a_requester_sees_the_request_and_then_the_tenant(users: Users) -> None:
    """A requester needs no namespace in the context: the own request names the tenant."""
    users.run("eve", "request", "create", "tenant", "evesdell", "--as-name", "evesdell")
    users.cli.await_right("eve", "get", "tenantrequests.tenantry.dev/evesdell", "default")
    said = users.run("eve", "my")
    assert "treq/evesdell" in said.stdout
    assert "no tenant of 'eve' is found" in said.stderr
    users.cli.run("approve", "treq/evesdell", "--wait")
    users.cli.run("wait", "tenant/evesdell")
    users.cli.await_right("eve", "get", "namespaces", "evesdell")
    assert "evesdell  Ready  User:eve" in users.run("eve", "my").stdout
    users.cli.run("delete", "tenant", "evesdell", "--yes", "--no-wait")


def test_an_administrator_is_shown_no_tenant_of_others(users: Users) -> None:
    said = users.cli.run("my", code=1)
    assert said.stdout == ""
    assert MINE in users.cli.run("my", MINE).stdout
