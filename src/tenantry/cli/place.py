"""The namespace that a verb acts on: -n and -A as in kubectl, rejected for kinds that are in no namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tenantry.api.errors import InputError
from tenantry.cli import paths
from tenantry.cli.completion import candidates
from tenantry.cli.kinds import Kind, ObjectSelection
from tenantry.cli.paths import NAMESPACE
from tenantry.cli.target import Target

F = TypeVar("F", bound=Callable[..., Any])

NOWHERE = "default"
"""The namespace of a context that names none; it does not belong to a tenant."""


def takes_namespace(text: str, *, metavar: str = "NAMESPACE") -> Callable[[F], F]:
    """Return the option -n of a verb.

    Args:
        text: The help.
        metavar: The placeholder in the help.
    """
    return click.option(
        "-n",
        "--namespace",
        default="",
        metavar=metavar,
        shell_complete=candidates.namespaces,
        type=NAMESPACE,
        help=text,
    )


namespace_option = takes_namespace(
    "Namespace of the objects, or the path to it, as in acme/web; of a Subnamespace, its parent."
)
parent_option = takes_namespace("Parent namespace (default: the namespace of the context).", metavar="PARENT")
everywhere_option = click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="Objects of all namespaces."
)


def settle(
    target: Target,
    asked: Sequence[ObjectSelection],
    namespace: str,
    *,
    everywhere: bool = False,
    may_be_everywhere: bool = False,
) -> list[ObjectSelection]:
    """Return selections of objects with their namespaces.

    Args:
        target: The cluster; its context may name a namespace, and it is asked where paths lead.
        asked: Kinds and names, or paths.
        namespace: -n; "" if it was not given.
        everywhere: -A.
        may_be_everywhere: The verb has -A.

    Raises:
        InputError: A flag does not apply to the kinds, or a namespace is missing.
        NotFound: A path leads nowhere.
        ConfigError: The context cannot be read.
    """
    if namespace and everywhere:
        raise InputError("give either --namespace or --all-namespaces, not both")
    inside = [each for each in asked if each.kind.resource.namespaced]
    if asked and not inside and (namespace or everywhere):
        flag = "--namespace" if namespace else "--all-namespaces"
        raise InputError(f"{asked[0].kind.resource.plural} are in no namespace: leave {flag} out")
    if everywhere and any(each.names for each in inside):
        raise InputError("--all-namespaces may not be given together with names; say with -n where they are")
    if not inside or everywhere:
        return list(asked)
    texts = {name for each in inside for name in each.names if "/" in name}
    parents = paths.resolve(target, {text: paths.parent_of([text], namespace) for text in texts})
    without_path = [each for each in inside if not each.names or not texts.issuperset(each.names)]
    chosen = namespace or (context_namespace(target) if without_path else "")
    if without_path and not chosen:
        plural = without_path[0].kind.resource.plural
        others = ", or all with -A" if may_be_everywhere and not without_path[0].names else ""
        raise InputError(f"{plural} are in namespaces: name one with -n, as in `-n acme`{others}")
    found: dict[tuple[Kind, str], list[str]] = {}
    for each in asked:
        here = chosen if each.kind.resource.namespaced else ""
        if not each.names:
            found[each.kind, here] = []
        for name in each.names:
            found.setdefault((each.kind, parents.get(name, here)), []).append(name.rpartition("/")[2])
    # Two paths, or a path and a name, may lead to the same object.
    return [ObjectSelection(kind, tuple(dict.fromkeys(names)), where) for (kind, where), names in found.items()]


def parent(target: Target, namespace: str) -> str:
    """Return the namespace that -n, or else the context, names.

    Raises:
        InputError: Neither names one.
    """
    chosen = namespace or context_namespace(target)
    if not chosen:
        raise InputError("name the namespace with -n, as in `-n acme`: the context names none")
    return chosen


def context_namespace(target: Target) -> str:
    """Return the namespace that the context names; "" for none.

    Raises:
        ConfigError: The credentials are missing or cannot be read.
    """
    named = target.connection().namespace
    return "" if named == NOWHERE else named
