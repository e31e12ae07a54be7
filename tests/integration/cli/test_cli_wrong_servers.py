"""A dead or wrong API server is reported in one sentence with its address and what to check, by every verb."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from typing_extensions import override

from tenantry.api.errors import TenantryError
from tenantry.cli.main import tenantry
from tenantry.local import pki

VERBS = (
    ("get", "tenants"),
    ("describe", "tenant", "acme"),
    ("tree",),
    ("quota",),
    ("diff",),
    ("audit", "acme"),
    ("explain", "denied", "-f", "pod.json"),
    ("explain", "quota", "acme", "--want", "cpu=1"),
    ("wait", "tenant/acme"),
    ("nodes",),
    ("requests",),
    ("slice", "list"),
    ("kubeconfig", "--tenant", "acme"),
    ("delete", "tenant", "acme", "--yes"),
)


class WebPage(http.server.BaseHTTPRequestHandler):
    """Answers /version with a page for people, and nothing else."""

    def do_GET(self) -> None:
        body = b"<html>It works!</html>"
        self.send_response(200 if self.path == "/version" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of two authorities, and a manifest."""
    made = tmp_path_factory.mktemp("servers")
    for name in ("own", "other"):
        pki.ensure(made / name, pki.apiserver_leaves(), dt.datetime.now(dt.UTC))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    (made / "pod.json").write_text(json.dumps(pod))
    return made


@contextmanager
def web_server(tls: ssl.SSLContext | None = None) -> Generator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), WebPage) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def said(folder: Path, server: str, verb: tuple[str, ...], authority: str = "own") -> str:
    """Run a verb against a server, and return the message of its error."""
    ca = b64encode((folder / authority / "ca.crt").read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "acme"}}],
        "current-context": "c",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    words = [str(folder / word) if word == "pod.json" else word for word in verb]
    done = CliRunner().invoke(tenantry, [*words, "--kubeconfig", str(folder / "kubeconfig")])
    assert isinstance(done.exception, TenantryError), done.exception
    assert done.exception.exit_code == 5
    message = str(done.exception)
    assert message.count("\n") == 0
    assert "0x" not in message, "the name of a Python object"
    return message


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_port_without_a_listener_is_named(folder: Path, verb: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"https://127.0.0.1:{taken.getsockname()[1]}"
    message = said(folder, address, verb)
    assert message.startswith(f"the API server {address} of kubeconfig")
    assert message.endswith("cannot be reached: Connection refused; check that it runs, and its address")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_server_of_another_authority_is_named(folder: Path, verb: tuple[str, ...]) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "own" / "server.crt", folder / "own" / "server.key")
    with web_server(tls) as port:
        message = said(folder, f"https://127.0.0.1:{port}", verb, "other")
        assert f"the API server https://127.0.0.1:{port} of" in message
        assert "its certificate does not verify (" in message
        assert message.endswith("check certificate-authority")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_web_server_is_not_taken_for_an_api_server(folder: Path, verb: tuple[str, ...]) -> None:
    with web_server() as port:
        assert said(folder, f"http://127.0.0.1:{port}", verb).startswith(
            f"the server http://127.0.0.1:{port} of kubeconfig"
        )
        assert "is not a Kubernetes API server" in said(folder, f"http://127.0.0.1:{port}", verb)
        assert "TLS fails" in said(folder, f"https://127.0.0.1:{port}", verb)
