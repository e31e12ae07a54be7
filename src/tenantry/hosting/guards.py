"""The guards of a hosted API server as files: policies that it reads by itself, and that are no objects. Pure.

    guards/guards.json               ValidatingAdmissionPolicies and bindings, read again when they change
    admission-configuration.json     names the folder, by its whole path

Source: Kubernetes, KEP-5793 (ManifestBasedAdmissionControlConfig), an alpha feature of 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api.clusterguards import ClusterGuard
from tenantry.hosting import versions
from tenantry.policy import guards

CONFIGURATION = "admission-configuration.json"
FOLDER = "guards"
FILE = "guards.json"
FIRST_VERSION = "1.36"
"""The first minor version with the feature."""

GATE = "ManifestBasedAdmissionControlConfig"
_PLUGIN = "ValidatingAdmissionPolicy"


def obstacle(version: str, emulates: str) -> str:
    """Return why a process cannot have guards; "" if it can.

    Args:
        version: The version of Kubernetes of its program, as in "1.36" or "1.36.3"; "" for the default.
        emulates: The minor version that it behaves as; "" for its own.
    """
    shown = emulates or version
    if not shown or not versions.is_before(shown, FIRST_VERSION):
        return ""
    return f"Kubernetes {shown} has no admission policies from files, which {FIRST_VERSION} has"


def flags(given: Sequence[ClusterGuard]) -> list[str]:
    """Return the flags of kube-apiserver beside the feature gate."""
    return [f"--admission-control-config-file={CONFIGURATION}"] if given else []


def gate(given: Sequence[ClusterGuard]) -> str:
    """Return what the flag of the feature gates ends with."""
    return f",{GATE}=true" if given else ""


def files(given: Sequence[ClusterGuard], folder: str) -> dict[str, bytes]:
    """Return the files by their paths below the folder of the control plane; none without guards.

    Args:
        given: The guards.
        folder: The whole path of the folder.
    """
    if not given:
        return {}
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": _PLUGIN,
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": f"{_PLUGIN}Configuration",
                    "staticManifestsDir": f"{folder}/{FOLDER}",
                },
            }
        ],
    }
    policies = {"apiVersion": "v1", "kind": "List", "items": guards.manifests(given)}
    return {
        CONFIGURATION: msgspec.json.encode(configuration),
        f"{FOLDER}/{FILE}": msgspec.json.format(msgspec.json.encode(policies), indent=2) + b"\n",
    }
