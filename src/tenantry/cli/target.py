"""The cluster that a command uses, chosen in the same way for every verb.

    --kubeconfig, --context  >  --cluster, $TENANTRY_NAME  >  $KUBECONFIG  >  the local cluster "default", if it runs
    >  the pod's own

~/.kube/config is used only with --context or --kubeconfig: a command that deletes tenants must not find a cluster by
accident.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from tenantry.api.errors import ConfigError, InputError, LocalError
from tenantry.api.wording import shortened
from tenantry.cli import spellings
from tenantry.cli.groupflags import CLUSTER_FLAGS, outwards
from tenantry.local import locks
from tenantry.local.paths import ClusterPaths, check_name, cluster_folder, home

if TYPE_CHECKING:
    from tenantry.kube.kubeconfig import Connection

DEFAULT_NAME = "default"
_SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The cluster that a command talks to.

    Args:
        kubeconfig: The one file to read; None for the files of $KUBECONFIG (or, with a context, ~/.kube/config).
        context: The context in it; None for the current one.
        local_name: The name of the local cluster, if it is one.
        in_cluster: Use the credentials that Kubernetes gives to this pod.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    local_name: str | None = None
    in_cluster: bool = False

    def connection(self) -> Connection:
        """Read the credentials.

        Raises:
            ConfigError: They are missing or cannot be read.
        """
        from tenantry.kube import kubeconfig

        if self.in_cluster:
            found = kubeconfig.in_cluster()
            if found is None:
                raise ConfigError(
                    f'this is not a pod with a service account: "{_SERVICE_ACCOUNT_TOKEN}" does not exist'
                )
            return found
        paths = (self.kubeconfig,) if self.kubeconfig else kubeconfig.default_paths()
        return kubeconfig.load(paths, self.context)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What determines the cluster if no flag does.

    Args:
        root: The folder of the local clusters.
        name: $TENANTRY_NAME, "" if it is not set.
        kubeconfig: $KUBECONFIG, "" if it is not set.
        is_running: Returns whether the local cluster of a name runs.
        names: Returns the names of the local clusters, running or not.
        in_pod: This is a pod with a service account.
    """

    root: Path
    name: str
    kubeconfig: str
    is_running: Callable[[str], bool]
    names: Callable[[], Sequence[str]]
    in_pod: bool


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """Return the environment of this process."""
    root = home()

    def paths(name: str) -> ClusterPaths:
        return ClusterPaths(cluster_folder(name, root))

    def is_running(name: str) -> bool:
        own = paths(name)
        if locks.is_held(own.supervisor_lock):
            return True
        # A light peer runs under the supervisor of its home.
        from tenantry.local.spec import supervised_at

        return own.spec.exists() and locks.is_held(supervised_at(own).supervisor_lock)

    return Environment(
        root=root,
        name=variables.get("TENANTRY_NAME", ""),
        kubeconfig=variables.get("KUBECONFIG", ""),
        is_running=is_running,
        names=lambda: sorted(each.parent.name for each in root.glob("clusters/*/" + paths(DEFAULT_NAME).spec.name)),
        in_pod="KUBERNETES_SERVICE_HOST" in variables and _SERVICE_ACCOUNT_TOKEN.exists(),
    )


def resolve(kubeconfig: Path | None, context: str | None, name: str | None, environment: Environment) -> Target:
    """Return the cluster that flags and the environment name.

    Args:
        kubeconfig: --kubeconfig.
        context: --context.
        name: --cluster.
        environment: What determines the cluster if no flag does.

    Raises:
        InputError: --cluster is given together with the other flags, or is not a DNS label.
        LocalError: The named local cluster does not exist or does not run.
        ConfigError: No cluster is named, and no local one runs.
    """
    if kubeconfig or context:
        if name:
            raise InputError("--cluster names a local cluster and may not be given with --kubeconfig or --context")
        return Target(kubeconfig=kubeconfig, context=context)
    if name := name or environment.name:
        check_name(name)
        if not environment.is_running(name):
            what = "is not running" if name in environment.names() else "does not exist"
            raise LocalError(f'the local cluster "{name}" {what}: start it with `tenantry up --cluster {name}`')
        return _local(name, environment)
    if environment.kubeconfig:
        return Target()
    if environment.is_running(DEFAULT_NAME):
        return _local(DEFAULT_NAME, environment)
    if environment.in_pod:
        return Target(in_cluster=True)
    if running := [each for each in environment.names() if environment.is_running(each)]:
        raise ConfigError(
            f"no cluster is named: these local clusters run: {shortened(running)}; choose one with --cluster or"
            " TENANTRY_NAME, or another with --kubeconfig, --context or KUBECONFIG"
        )
    raise ConfigError(
        "no cluster to talk to: start a local one with `tenantry up`, or name yours with --cluster, --kubeconfig, "
        "--context or KUBECONFIG"
    )


def overriding_variable(name: str, environment: Environment) -> str:
    """Return the variable that makes verbs without flags use another cluster than a local one; "" if none does."""
    if environment.name:
        return "" if environment.name == name else "TENANTRY_NAME"
    own = str(_local(name, environment).kubeconfig)
    return "KUBECONFIG" if environment.kubeconfig not in {"", own} else ""


def _local(name: str, environment: Environment) -> Target:
    paths = ClusterPaths(cluster_folder(name, environment.root))
    return Target(kubeconfig=paths.kubeconfig("admin"), local_name=name)


def named(given: click.Context) -> Target:
    """Return the cluster that the flags of a command, those before it, and the environment name.

    A flag after the verb wins over the same flag before it, as the last one does in kubectl.

    Raises:
        InputError, LocalError, ConfigError: As `resolve` does.
    """
    kubeconfig, context = (
        next(filter(None, (each.params.get(key) for each in outwards(given))), None) for key in CLUSTER_FLAGS
    )
    return resolve(Path(kubeconfig) if kubeconfig else None, context, given.params.get("name"), read_environment())


def takes_target(command: Callable[Concatenate[Target, P], R]) -> Callable[P, R]:
    """Give a command --kubeconfig, --context and --cluster, and the `Target` that they name as its first argument."""

    @may_take_target
    @functools.wraps(command)
    def resolved(find: Callable[[], Target], *args: P.args, **kwargs: P.kwargs) -> R:
        from tenantry.cli import paths

        target = find()
        kwargs.update(paths.resolved(target, kwargs))
        return command(target, *args, **kwargs)

    return resolved


def may_take_target(command: Callable[Concatenate[Callable[[], Target], P], R]) -> Callable[P, R]:
    """Do the same for a command that may not need a cluster: its first argument returns the target when called."""

    @click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path to the kubeconfig.")
    @click.option("--context", help="Context to use (of --kubeconfig, KUBECONFIG or ~/.kube/config).")
    @spellings.option("--cluster", "name", old="--name", help="Local cluster to use (default: TENANTRY_NAME).")
    @functools.wraps(command)
    def resolving(*args: P.args, **kwargs: P.kwargs) -> R:
        for key in ("kubeconfig", "context", "name"):
            kwargs.pop(key, None)
        given = click.get_current_context()

        def find() -> Target:
            return named(given)

        return command(find, *args, **kwargs)

    return resolving
