"""`tenantry oidc`: what a cluster and its people need for logins at an OIDC provider; and the flags that name one."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.flags import parse_pairs
from tenantry.cli.local.name import name_option
from tenantry.cli.target import Target, takes_target
from tenantry.local.authentication import Oidc, check, configuration, warnings

P = ParamSpec("P")
R = TypeVar("R")

_NEEDED = ("oidc_issuer", "oidc_client_id")
_FLAGS = (
    *_NEEDED,
    "oidc_username_claim",
    "oidc_username_prefix",
    "oidc_groups_claim",
    "oidc_groups_prefix",
    "oidc_ca",
)


def takes_oidc(command: Callable[Concatenate[Oidc | None, P], R]) -> Callable[P, R]:
    """Give a command the flags --oidc-…, and the provider that they describe as its first argument, None for none."""

    @click.option("--oidc-issuer", metavar="URL", help="Believe the tokens of this OIDC provider (https).")
    @click.option("--oidc-client-id", metavar="ID", help="Tokens must be for this client (aud).")
    @click.option("--oidc-username-claim", metavar="CLAIM", help="sub, or email where it is verified.  [default: sub]")
    @click.option("--oidc-username-prefix", metavar="TEXT", help="Put before users' names.  [default: oidc:]")
    @click.option("--oidc-groups-claim", metavar="CLAIM", help="Which claim lists the groups.  [default: groups]")
    @click.option("--oidc-groups-prefix", metavar="TEXT", help="Put before groups' names.  [default: oidc:]")
    @click.option(
        "--oidc-required-claim", multiple=True, metavar="CLAIM=VALUE", help="What tokens must say; may be repeated."
    )
    @click.option(
        "--oidc-ca",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Trust the provider by these authorities, PEM, instead of the machine's.",
    )
    @functools.wraps(command)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        given = {flag: kwargs.pop(flag) for flag in _FLAGS}
        pairs = msgspec.convert(kwargs.pop("oidc_required_claim"), tuple[str, ...])
        required = parse_pairs("--oidc-required-claim", pairs)
        oidc = read({flag: value for flag, value in given.items() if value is not None}, required)
        return command(oidc, *args, **kwargs)

    return reading


def read(given: dict[str, object], required: dict[str, str]) -> Oidc | None:
    """Return the provider that flags describe; None where there are none.

    Args:
        given: Flags and their values, but for --oidc-required-claim, by the names that Python has for them.
        required: Claims that are required.

    Raises:
        InputError: They describe none that can be used.
    """
    if not given and not required:
        return None
    missing = [flag for flag in _NEEDED if flag not in given]
    if missing:
        first = next(iter(given), "oidc_required_claim")
        raise InputError(
            f"{_flag(first)} needs {' and '.join(_flag(flag) for flag in missing)}: the flags together say everything"
            " about the provider"
        )
    values = {flag.removeprefix("oidc_"): value for flag, value in given.items() if isinstance(value, str)}
    ca = given.get("oidc_ca")
    oidc = check(Oidc(**values, required_claims=required, ca=_text(ca) if isinstance(ca, Path) else ""))
    for warning in warnings(oidc):
        output.talk(f"warning: {warning}")
    return oidc


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(file: Path) -> str:
    try:
        found = file.read_text("ascii", "replace")
    except OSError as error:
        raise InputError(f'--oidc-ca "{file}" cannot be read: {error.strerror}') from error
    if not found.strip():
        raise InputError(f'--oidc-ca "{file}" is empty')
    return found


@click.group()
def oidc() -> None:
    """Print what a cluster and its people need for logins at an OIDC provider."""


@oidc.command()
@name_option
@takes_oidc
@output.output_option("yaml", "json", default="yaml", text="YAML or JSON.")
def config(oidc: Oidc | None, *, name: str, form: str) -> None:
    r"""Print the configuration with which any cluster believes a provider: an AuthenticationConfiguration.

    Give its file to the API server as --authentication-config. Without flags of a provider it is that of the local
    cluster.

    \b
      tenantry oidc config --oidc-issuer https://login.example.com --oidc-client-id kubernetes > authentication.yaml
    """
    value = configuration(oidc or _kept(name))
    output.write(output.to_json(value) if form == "json" else output.to_yaml([value]))


@oidc.command()
@takes_target
@takes_oidc
@click.option("-n", "--namespace", default="default", show_default=True, metavar="NAMESPACE", help="Begin there.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Ask the provider for more; may be repeated.")
def kubeconfig(oidc: Oidc | None, target: Target, *, namespace: str, scopes: tuple[str, ...]) -> None:
    r"""Print a kubeconfig for all users of the provider: kubectl opens the provider's login in a browser.

    There is no secret in it. It needs the kubectl plugin oidc-login (kubelogin). On a local cluster the provider is the
    one that it has.

    \b
      tenantry oidc kubeconfig -n acme > acme.kubeconfig
      kubectl --kubeconfig acme.kubeconfig get pods
    """
    from tenantry.cli.certificates import kubeconfig_with

    if oidc is None:
        if target.local_name is None:
            raise InputError("this cluster is not a local one: name its provider with --oidc-issuer, --oidc-client-id")
        oidc = _kept(target.local_name)
    user = {"exec": plugin(oidc, scopes)}
    output.write(output.to_yaml([kubeconfig_with(target.connection(), namespace, "oidc", user)]))


def plugin(oidc: Oidc, scopes: Sequence[str] = ()) -> dict[str, object]:
    """Return the `exec` of a kubeconfig's user who logs in with kubelogin.

    Args:
        oidc: The provider.
        scopes: What to ask for beside `openid`, and `email` where that is the user's name.
    """
    wanted = dict.fromkeys(("email", *scopes) if oidc.username_claim == "email" else scopes)
    arguments = [
        *("oidc-login", "get-token", f"--oidc-issuer-url={oidc.issuer}", f"--oidc-client-id={oidc.client_id}"),
        *(f"--oidc-extra-scope={scope}" for scope in wanted),
    ]
    if oidc.ca:
        arguments.append(f"--certificate-authority-data={base64.b64encode(oidc.ca.encode()).decode()}")
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "IfAvailable",
        "command": "kubectl",
        "args": arguments,
        "installHint": "the kubectl plugin oidc-login (kubelogin) is needed: kubectl krew install oidc-login",
    }


def _kept(name: str) -> Oidc:
    from tenantry.local.cluster import LocalCluster

    found = LocalCluster(name).spec().oidc
    if found is None:
        raise InputError(
            f'the local cluster "{name}" has no OIDC provider: name one with --oidc-issuer and --oidc-client-id'
        )
    return found
