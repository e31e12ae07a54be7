"""Which cluster a command talks to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import ConfigError, InputError, LocalError
from tenantry.cli.target import Environment, Target, overriding_variable, resolve

ROOT = Path("/home/a")
LOCAL = Target(kubeconfig=ROOT / "clusters/default/admin.kubeconfig", local_name="default")
OTHER = Target(kubeconfig=ROOT / "clusters/other/admin.kubeconfig", local_name="other")
FILE = Path("/etc/my.kubeconfig")


def given(*running: str, name: str = "", kubeconfig: str = "", in_pod: bool = False) -> Environment:
    return Environment(
        root=ROOT,
        name=name,
        kubeconfig=kubeconfig,
        is_running=lambda name: name in running,
        exists=lambda name: name in (*running, "stopped"),
        in_pod=in_pod,
    )


@pytest.mark.parametrize(
    ("asked", "environment", "target"),
    [
        ((FILE, None, None), given("default", kubeconfig="k", in_pod=True), Target(kubeconfig=FILE)),
        ((FILE, "c", None), given("default"), Target(kubeconfig=FILE, context="c")),
        ((None, "c", None), given("default", kubeconfig="k"), Target(context="c")),
        (
            (None, None, "other"),
            given("default", "other", name="default", kubeconfig="k", in_pod=True),
            OTHER,
        ),
        ((None, None, None), given("default", "other", name="other", kubeconfig="k", in_pod=True), OTHER),
        ((FILE, None, None), given("default", name="default"), Target(kubeconfig=FILE)),
        ((None, "c", None), given("default", name="default"), Target(context="c")),
        ((None, None, None), given("default", kubeconfig="k", in_pod=True), Target()),
        ((None, None, None), given("default", in_pod=True), LOCAL),
        ((None, None, None), given("other", in_pod=True), Target(in_cluster=True)),
    ],
)
def test_the_first_that_is_there_wins(
    asked: tuple[Path | None, str | None, str | None], environment: Environment, target: Target
) -> None:
    assert resolve(*asked, environment) == target


@pytest.mark.parametrize(
    ("name", "message"),
    [("stopped", '"stopped" is not running: start it'), ("absent", '"absent" does not exist: start it')],
)
def test_a_named_cluster_must_run(name: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        resolve(None, None, name, given("default"))


def test_a_name_must_be_a_label() -> None:
    with pytest.raises(InputError, match="DNS label"):
        resolve(None, None, "../x", given("default"))


def test_a_name_and_a_file_contradict_each_other() -> None:
    with pytest.raises(InputError, match="--name"):
        resolve(FILE, None, "default", given("default"))


def test_no_cluster_at_all_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="tenantry up"):
        resolve(None, None, None, given())


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        (given("default"), ""),
        (given("default", kubeconfig="k"), "KUBECONFIG"),
        (given("default", kubeconfig=str(ROOT / "clusters/default/admin.kubeconfig")), ""),
        (given("default", name="default", kubeconfig="k"), ""),
        (given("default", "other", name="other", kubeconfig="k"), "TENANTRY_NAME"),
    ],
)
def test_a_variable_that_names_another_cluster_is_found(environment: Environment, variable: str) -> None:
    """`tenantry up` warns about it: the next command would change the cluster of the variable."""
    assert overriding_variable("default", environment) == variable
