"""The register of hosts: ConfigMaps that say whose each host is, so that none has two tenants.

They lie in Tenantry's own namespace. The operator alone writes them; the policy `tenantry-hosts` in the API server has
them as its parameters, and administrators may read them. Hosts are spread over several by a digest, so that none
becomes too large; those that begin with *. have one of their own. The cluster's own have no uid:

    data:
      "16": |                                  the length of the hosts, by which a policy finds one at once

        web.acme.example TENANT-UID/NAMESPACE

    data:
      .acme.example: TENANT-UID/NAMESPACE      of those that begin with *.

An entry of its own for each host would cost the API server a third of a microsecond each, at each request.

No custom kind: see `tenancyrules.RulesMap`, which they are.
"""

from __future__ import annotations

HOSTS_MARK = "hosts"
"""The value of their label `tenancyrules.OWN_MARK`."""

PREFIX = "tenantry-hosts-"
"""What the name of each begins with; a part follows."""

WILDCARDS = "wildcards"
PARTS = (*"0123456789abcdef", WILDCARDS)

LINE, FIELD, SEPARATOR = "\n", " ", "/"
"""Before each host; between it and its holder; between the uid of a tenant and the namespace."""
