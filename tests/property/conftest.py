"""How properties are tried: without a deadline, since the machine that runs them may be busy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("tenantry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tenantry")
