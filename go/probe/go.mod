module tenantry.dev/probe

go 1.26.0
