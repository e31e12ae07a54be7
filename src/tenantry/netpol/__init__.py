"""The NetworkPolicy agent of real nodes: compiles all NetworkPolicies to one nftables table on each node."""
