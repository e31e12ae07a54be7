"""Which cluster a command talks to."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tenantry.api.errors import ConfigError, InputError, LocalError
from tenantry.cli.main import tenantry
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
        names=lambda: [*running, "stopped"],
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
    with pytest.raises(InputError, match="--cluster"):
        resolve(FILE, None, "default", given("default"))


def test_no_cluster_at_all_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="tenantry up"):
        resolve(None, None, None, given())
    with pytest.raises(ConfigError, match="these local clusters run: other; choose one with --cluster"):
        resolve(None, None, None, given("other"))


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


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: there, context: {cluster: c, user: u}}]
"""


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--kubeconfig ABSENT tree", "absent"),
        ("tree --kubeconfig ABSENT", "absent"),
        ("--kubeconfig FILE --context lost tree", "lost"),
        ("tree --kubeconfig FILE --context lost", "lost"),
        ("--kubeconfig FILE tree --context lost", "lost"),
        ("--context lost tree --kubeconfig FILE", "lost"),
        ("--context lost tenant suspend acme --kubeconfig FILE", "lost"),
        ("--kubeconfig FILE --context there tree --context lost", "lost"),
        ("--kubeconfig FILE tree --kubeconfig ABSENT", "absent"),
        ("tenant --kubeconfig FILE --context lost suspend acme", "lost"),
        ("tenant --kubeconfig=FILE suspend acme --context=lost", "lost"),
        ("--context there tenant --kubeconfig FILE --context lost suspend acme", "lost"),
        ("tenant --kubeconfig FILE --context there suspend acme --context lost", "lost"),
        ("quota --kubeconfig FILE --context lost", "lost"),
        ("quota --kubeconfig FILE --context lost acme", "lost"),
        ("quota --kubeconfig FILE --context=lost adjust acme sale --by cpu=1 --for 1h", "lost"),
    ],
)
def test_flags_before_and_after_the_verb_name_the_cluster(tmp_path: Path, words: str, named: str) -> None:
    """X07: as with kubectl, also in `kubectl tenantry --context c tree`; the flag after the verb wins."""
    file, absent = tmp_path / "file", tmp_path / "absent"
    file.write_text(KUBECONFIG)
    arguments = words.replace("ABSENT", str(absent)).replace("FILE", str(file)).split()
    with pytest.raises(ConfigError, match=named):
        tenantry.main(arguments, standalone_mode=False)


@pytest.mark.parametrize("words", [("up",), ("render", "-f", "-"), ("oidc", "config"), ("operator",)])
def test_flags_before_a_verb_that_would_not_use_them_are_refused(words: tuple[str, ...]) -> None:
    """X07: no flag is dropped in silence."""
    with pytest.raises(click.UsageError, match=r"--context may not be given before `" + words[0]):
        tenantry.main(["--context", "c", *words], standalone_mode=False)


@pytest.mark.parametrize("words", ["oidc --context c config", "--context c oidc config"])
def test_flags_of_a_group_are_refused_for_a_verb_that_would_not_use_them(words: str) -> None:
    """X07: no flag is dropped in silence."""
    with pytest.raises(click.UsageError, match=r"--context may not be given before `oidc config`"):
        tenantry.main(words.split(), standalone_mode=False)


def test_a_group_without_verbs_that_talk_to_a_cluster_takes_no_flags_of_one() -> None:
    with pytest.raises(click.NoSuchOption):
        tenantry.main(["local", "--context", "c", "build"], standalone_mode=False)


def test_a_flag_before_the_verb_and_a_local_cluster_exclude_each_other() -> None:
    with pytest.raises(InputError, match="--cluster names a local cluster"):
        tenantry.main(["--context", "c", "tree", "--cluster", "other"], standalone_mode=False)
