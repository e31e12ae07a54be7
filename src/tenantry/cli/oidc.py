"""`tenantry oidc`: the configuration of a cluster and of its users for logins at an OIDC provider, and its flags."""

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
    """Give a command the flags --oidc-…, and the provider that they describe as its first argument; None for none."""

    @click.option(
        "--oidc-issuer", metavar="URL", help="URL of the OIDC provider (https); the API server trusts its tokens."
    )
    @click.option("--oidc-client-id", metavar="ID", help="Client id that tokens must be issued for (aud).")
    @click.option(
        "--oidc-username-claim",
        metavar="CLAIM",
        help="Claim with the user name: sub, or email if it is verified (default: sub).",
    )
    @click.option("--oidc-username-prefix", metavar="TEXT", help="Prefix of user names (default: oidc:).")
    @click.option("--oidc-groups-claim", metavar="CLAIM", help="Claim with the list of groups (default: groups).")
    @click.option("--oidc-groups-prefix", metavar="TEXT", help="Prefix of group names (default: oidc:).")
    @click.option(
        "--oidc-required-claim",
        multiple=True,
        metavar="CLAIM=VALUE",
        help="Claim that tokens must have. May be repeated.",
    )
    @click.option(
        "--oidc-ca",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="File with the certificate authorities of the provider, PEM (default: those of the machine).",
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
    """Return the provider that flags describe; None without flags.

    Args:
        given: The values of the flags except --oidc-required-claim, by their names in Python.
        required: The values of --oidc-required-claim.

    Raises:
        InputError: A flag is missing or invalid.
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
    """Print the configuration of a cluster and of its users for logins at an OIDC provider."""


@oidc.command()
@name_option
@takes_oidc
@output.output_option("yaml", "json", default="yaml", text="YAML or JSON.")
def config(oidc: Oidc | None, *, name: str, form: str) -> None:
    r"""Print the AuthenticationConfiguration by which any cluster trusts a provider.

    Pass its file to the API server as --authentication-config. Without flags of a provider, this is the configuration
    of the local cluster.

    \b
      tenantry oidc config --oidc-issuer https://login.example.com --oidc-client-id kubernetes > authentication.yaml
    """
    value = configuration(oidc or _kept(name))
    output.write(output.to_json(value) if form == "json" else output.to_yaml([value]))


@oidc.command()
@takes_target
@takes_oidc
@click.option(
    "-n", "--namespace", default="default", show_default=True, metavar="NAMESPACE", help="Namespace of the context."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="Further scope to request from the provider. May be repeated.",
)
def kubeconfig(oidc: Oidc | None, target: Target, *, namespace: str, scopes: tuple[str, ...]) -> None:
    r"""Print a kubeconfig for all users of the provider: kubectl opens the provider's login in a browser.

    It has no secret. It needs the kubectl plugin oidc-login (kubelogin). The default is the provider of the local
    cluster.

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
    """Return the `exec` of a user in a kubeconfig that logs in with kubelogin.

    Args:
        oidc: The provider.
        scopes: Scopes to request in addition to `openid`, and to `email` if that claim is the user name.
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
