"""What a cluster needs before tenants can live in it: kinds, rights, policies, and the operator's Deployment."""
