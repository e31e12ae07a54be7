module tenantry.dev/hosted-sidecar

go 1.26.0
