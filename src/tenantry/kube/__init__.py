"""The only code that speaks HTTP to an API server: client, watch, kubeconfig, errors."""
