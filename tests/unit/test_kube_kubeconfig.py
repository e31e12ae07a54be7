"""kubeconfig files, as kubectl reads them, and what is said about wrong ones."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantry.api.errors import ConfigError
from tenantry.kube import kubeconfig

Json = dict[str, Any]


def _config(name: str = "a", **user: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": f"cluster-{name}", "cluster": {"server": f"https://{name}.example:6443/"}}],
        "users": [{"name": f"user-{name}", "user": user or {"token": f"token-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": f"cluster-{name}", "user": f"user-{name}"}}],
        "current-context": name,
    }


def _write(path: Path, config: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return path


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_current_context_is_followed(tmp_path: Path) -> None:
    connection = kubeconfig.load([_write(tmp_path / "config", _config("a"))])
    assert connection.server == "https://a.example:6443"
    assert connection.token == "token-a"
    assert connection.namespace == "default"


def test_a_context_by_name_and_its_namespace(tmp_path: Path) -> None:
    config = _config("a")
    other = _config("b")
    config["clusters"] += other["clusters"]
    config["users"] += other["users"]
    config["contexts"] += [{"name": "b", "context": {**other["contexts"][0]["context"], "namespace": "acme"}}]
    connection = kubeconfig.load([_write(tmp_path / "config", config)], "b")
    assert (connection.server, connection.token, connection.namespace) == ("https://b.example:6443", "token-b", "acme")


def test_several_files_are_merged_and_the_first_to_name_a_thing_wins(tmp_path: Path) -> None:
    first = _config("a")
    del first["current-context"]
    second = _config("b")
    second["users"].append({"name": "user-a", "user": {"token": "stolen"}})
    second["contexts"].append({"name": "a", "context": {"cluster": "cluster-b", "user": "user-b"}})
    paths = [_write(tmp_path / "one", first), tmp_path / "missing", _write(tmp_path / "two", second)]
    assert kubeconfig.load(paths).server == "https://b.example:6443", "the second file's current-context"
    chosen = kubeconfig.load(paths, "a")
    assert (chosen.server, chosen.token) == ("https://a.example:6443", "token-a")


def test_kubeconfig_lists_files_and_home_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/x/a::/x/b")
    assert kubeconfig.default_paths() == (Path("/x/a"), Path("/x/b"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "")
    assert kubeconfig.default_paths() == (tmp_path / ".kube" / "config",)
    monkeypatch.delenv("KUBECONFIG")
    assert kubeconfig.default_paths() == (tmp_path / ".kube" / "config",)


def test_names_of_files_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    config = _config("a", **{"client-certificate": "pki/me.crt", "client-key": "pki/me.key"})
    config["clusters"][0]["cluster"]["certificate-authority"] = "../ca.crt"
    path = _write(tmp_path / "sub" / "config", config)
    _write(tmp_path / "ca.crt", "CA")
    _write(tmp_path / "sub" / "pki" / "me.crt", "CERT")
    _write(tmp_path / "sub" / "pki" / "me.key", "KEY")
    connection = kubeconfig.load([path])
    assert (connection.ca, connection.certificate, connection.key) == (b"CA", b"CERT", b"KEY")


def test_data_in_the_file_wins_over_a_file_beside_it(tmp_path: Path) -> None:
    config = _config(
        "a", **{"client-certificate": "gone", "client-certificate-data": _b64(b"C"), "client-key-data": _b64(b"K")}
    )
    connection = kubeconfig.load([_write(tmp_path / "config", config)])
    assert (connection.certificate, connection.key) == (b"C", b"K")


def test_data_may_be_broken_into_lines(tmp_path: Path) -> None:
    config = _config("a")
    text = _b64(b"x" * 100)
    config["clusters"][0]["cluster"]["certificate-authority-data"] = f"{text[:64]}\n{text[64:]}\n"
    assert kubeconfig.load([_write(tmp_path / "config", config)]).ca == b"x" * 100


def test_a_token_file_is_relative_too_and_read_later(tmp_path: Path) -> None:
    connection = kubeconfig.load([_write(tmp_path / "sub" / "config", _config("a", tokenFile="token"))])
    assert connection.token_file == tmp_path / "sub" / "token"
    assert connection.token == ""


def test_the_rest_of_what_a_cluster_and_a_user_may_say(tmp_path: Path) -> None:
    config = _config("a", **{"as": "bob", "as-groups": ["x", "y"], "token": "t"})
    config["clusters"][0]["cluster"] |= {
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "disable-compression": True,
    }
    connection = kubeconfig.load([_write(tmp_path / "config", config)])
    assert connection.insecure
    assert connection.tls_server_name == "kubernetes"
    assert connection.proxy_url == "http://proxy:3128"
    assert (connection.impersonate, connection.impersonate_groups) == ("bob", ("x", "y"))


def test_an_exec_plugin_is_kept_as_it_is_described(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "give-token",
        "args": None,
        "env": [{"name": "A", "value": "b"}],
        "installHint": "install give-token",
        "interactiveMode": "Never",
    }
    found = kubeconfig.load([_write(tmp_path / "config", _config("a", exec=plugin))]).exec_plugin
    assert found is not None
    assert (found.command, found.args, found.install_hint) == ("give-token", None, "install give-token")
    assert found.env is not None
    assert (found.env[0].name, found.env[0].value) == ("A", "b")


def test_a_plugin_that_is_named_by_a_path_is_found_beside_its_file(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./give-token"}
    found = kubeconfig.load([_write(tmp_path / "config", _config("a", exec=plugin))]).exec_plugin
    assert found is not None
    assert found.command == str(tmp_path / "give-token")


def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    config = _config("a")
    del config["contexts"][0]["context"]["user"]
    connection = kubeconfig.load([_write(tmp_path / "config", config)])
    assert (connection.token, connection.certificate) == ("", None)


def _without(key: str) -> Json:
    config = _config("a")
    del config[key]
    return config


def _with_cluster(**fields: object) -> Json:
    config = _config("a")
    config["clusters"][0]["cluster"] |= fields
    return config


WRONG: list[tuple[str, object, str]] = [
    ("empty", "", "has no current-context; choose one with --context"),
    ("no current context", _without("current-context"), "has no current-context"),
    ("no context of that name", _without("contexts"), "has no context 'a'; it has: none"),
    ("no cluster", _without("clusters"), "names the cluster 'cluster-a' but does not define it"),
    ("no user", _without("users"), "names the user 'user-a' but does not define it"),
    ("no server", _with_cluster(server=""), "cluster 'cluster-a' has no server"),
    ("not YAML", "clusters: [", r"is not a kubeconfig: the file is not YAML \(line 1, column 12\); name another"),
    ("not a mapping", "[1, 2]", "is not a kubeconfig"),
    ("only text", "hello", r"is not a kubeconfig; name another with --kubeconfig$"),
    ("another kind", {"apiVersion": "v1", "kind": "Secret"}, r"is not a kubeconfig, but a 'Secret'; name another"),
    ("a list of the wrong thing", {**_config("a"), "users": {"a": 1}}, "is not a kubeconfig"),
    ("not base64", _config("a", **{"client-certificate-data": "%%%"}), "not base64"),
    ("a file that is not there", _with_cluster(**{"certificate-authority": "gone.crt"}), "cannot be read"),
    ("a password", _config("a", username="u", password="p"), "no longer has"),
    ("an auth provider", _config("a", **{"auth-provider": {"name": "gcp"}}), "no longer has"),
]


@pytest.mark.parametrize(("config", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, config: object, message: str) -> None:
    path = _write(tmp_path / "config", config)
    with pytest.raises(ConfigError, match=message) as caught:
        kubeconfig.load([path])
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; name another with --kubeconfig"):
        kubeconfig.load([tmp_path / "gone"])


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        kubeconfig.load([tmp_path])


def test_binary_rubbish_is_no_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe\x00rubbish")
    with pytest.raises(ConfigError, match=r"cannot be read|not YAML"):
        kubeconfig.load([path])


def test_a_known_context_is_suggested_for_a_wrong_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no context 'z'; it has: a"):
        kubeconfig.load([_write(tmp_path / "config", _config("a"))], "z")


# -- in a pod -------------------------------------------------------------------------------------

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def _service_account(folder: Path) -> Path:
    _write(folder / "token", "t")
    _write(folder / "ca.crt", "CA")
    _write(folder / "namespace", "tenantry-system\n")
    return folder


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    connection = kubeconfig.in_cluster(POD, _service_account(tmp_path))
    assert connection is not None
    assert connection.server == "https://10.96.0.1:443"
    assert connection.namespace == "tenantry-system"
    assert connection.ca == b"CA"
    assert connection.token_file == tmp_path / "token"


def test_an_ipv6_address_is_bracketed(tmp_path: Path) -> None:
    connection = kubeconfig.in_cluster({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, _service_account(tmp_path))
    assert connection is not None
    assert connection.server == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"])
def test_outside_of_a_pod_there_is_none(tmp_path: Path, missing: str) -> None:
    environment = {key: value for key, value in POD.items() if key != missing}
    assert kubeconfig.in_cluster(environment, _service_account(tmp_path)) is None


def test_without_a_token_there_is_none(tmp_path: Path) -> None:
    assert kubeconfig.in_cluster(POD, tmp_path) is None


def test_a_service_account_without_authority_is_said(tmp_path: Path) -> None:
    _write(tmp_path / "token", "t")
    with pytest.raises(ConfigError, match="certificate authority"):
        kubeconfig.in_cluster(POD, tmp_path)
