"""Which cluster a command talks to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import ConfigError, InputError, LocalError
from tenantry.cli.target import Surroundings, Target, resolve

ROOT = Path("/home/a")
LOCAL = Target(kubeconfig=ROOT / "clusters/default/admin.kubeconfig", local_name="default")
OTHER = Target(kubeconfig=ROOT / "clusters/other/admin.kubeconfig", local_name="other")
FILE = Path("/etc/my.kubeconfig")


def around(*running: str, name: str = "", kubeconfig: str = "", in_pod: bool = False) -> Surroundings:
    return Surroundings(
        root=ROOT,
        name=name,
        kubeconfig=kubeconfig,
        is_running=lambda name: name in running,
        exists=lambda name: name in (*running, "stopped"),
        in_pod=in_pod,
    )


@pytest.mark.parametrize(
    ("asked", "surroundings", "target"),
    [
        ((FILE, None, None), around("default", kubeconfig="k", in_pod=True), Target(kubeconfig=FILE)),
        ((FILE, "c", None), around("default"), Target(kubeconfig=FILE, context="c")),
        ((None, "c", None), around("default", kubeconfig="k"), Target(context="c")),
        ((None, None, "other"), around("default", "other", name="default", kubeconfig="k", in_pod=True), OTHER),
        ((None, None, None), around("default", "other", name="other", kubeconfig="k", in_pod=True), OTHER),
        ((FILE, None, None), around("default", name="default"), Target(kubeconfig=FILE)),
        ((None, "c", None), around("default", name="default"), Target(context="c")),
        ((None, None, None), around("default", kubeconfig="k", in_pod=True), Target()),
        ((None, None, None), around("default", in_pod=True), LOCAL),
        ((None, None, None), around("other", in_pod=True), Target(in_cluster=True)),
    ],
)
def test_the_first_that_is_there_wins(
    asked: tuple[Path | None, str | None, str | None], surroundings: Surroundings, target: Target
) -> None:
    assert resolve(*asked, surroundings) == target


@pytest.mark.parametrize(
    ("name", "message"),
    [("stopped", '"stopped" is not running: start it'), ("absent", '"absent" does not exist: start it')],
)
def test_a_named_cluster_must_run(name: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        resolve(None, None, name, around("default"))


def test_a_name_must_be_a_label() -> None:
    with pytest.raises(InputError, match="DNS label"):
        resolve(None, None, "../x", around("default"))


def test_a_name_and_a_file_contradict_each_other() -> None:
    with pytest.raises(InputError, match="--name"):
        resolve(FILE, None, "default", around("default"))


def test_no_cluster_at_all_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="tenantry up"):
        resolve(None, None, None, around())
