module tenantry.dev/endpoint-proxy

go 1.26.0
