"""The register of hosts: `PolicyParameters` that record which network zone owns each host, so that none has two.

They lie in Tenantry's own namespace. The operator alone writes them; the policy `tenantry-hosts` in the API server has
them as its parameters, and administrators may read them. Hosts are spread over several by a digest, so that each fits
into an object. Hosts that begin with *. have parts of their own. The cluster's own hosts have no zone:

    parameters.tenantry.dev/16: |            the length of the hosts, by which a policy finds one at once

      web.acme.example ZONE/NAMESPACE

    parameters.tenantry.dev/wildcards: |     of those that begin with *., which is left out

      .acme.example ZONE/NAMESPACE

A text of its own for each host would cost the API server a third of a microsecond each, at each request.
"""

from __future__ import annotations

HOSTS_MARK = "hosts"
"""The value of their label `tenancyrules.OWN_MARK`."""

PREFIX = "tenantry-hosts-"
"""What the name of each begins with; a part follows."""

WILDCARDS = "wildcards"
"""The name of the text with wildcards, and the beginning of the names of their parts."""

HOST_PARTS = tuple(f"{number:02x}" for number in range(32))
WILDCARD_PARTS = tuple(f"{WILDCARDS}-{number:x}" for number in range(4))
PARTS = (*HOST_PARTS, *WILDCARD_PARTS)

LINE, FIELD, SEPARATOR = "\n", " ", "/"
"""Before each host; between it and its holder; between the zone, which is a uid, and the namespace."""
