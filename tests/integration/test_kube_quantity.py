"""Quantities as a real API server stores them."""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.model import ObjectMeta
from tenantry.world import quantity
from testkit.api import Api

pytest_plugins = ["testkit.fixtures"]

NUMBERS = ["0", "1", "3", "12", "100", "512", "999", "1000", "1023", "1024", "1025", "1536", "2048", "10000", "1048576"]
FRACTIONS = [
    "0.1",
    "0.5",
    "1.5",
    "2.25",
    "0.001",
    "0.0001",
    "0.333333333",
    "0.0000000001",
    "1.0",
    "1.",
    ".5",
    "1.000001",
]
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e0", "e1", "e2", "e3", "E6", "e-1", "e-3", "e-9"]


async def test_the_server_stores_quantities_exactly_as_we_write_them(api: Api, name: str) -> None:
    """E01: what is stored is what was written, so that nothing is ever corrected that is right."""
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    values = [number + suffix for number in [*NUMBERS, *FRACTIONS] for suffix in SUFFIXES]
    # As extended resources: of the rest Kubernetes wants whole numbers, or no more than thousandths.
    hard = {f"requests.example.com/r{index}": value for index, value in enumerate(values)}
    await api.create(ResourceQuota.resource, {"metadata": {"name": "given"}, "spec": {"hard": hard}}, name)
    stored: dict[str, str] = (await api.get(ResourceQuota.resource, "given", name))["spec"]["hard"]
    ours = {key: quantity.canonical(value) for key, value in hard.items()}
    wrong = {hard[key]: value for key, value in stored.items() if quantity.parse(value) != quantity.parse(ours[key])}
    assert wrong == {}, "it means the same"
    written = ResourceQuota(metadata=ObjectMeta(name="written", namespace=name), spec=ResourceQuotaSpec(hard=ours))
    await api.client.create(written)
    again: dict[str, str] = (await api.get(ResourceQuota.resource, "written", name))["spec"]["hard"]
    assert again == ours
    await api.delete(Namespace.resource, name)
