"""Benchmarks of any cluster that a kubeconfig reaches."""
