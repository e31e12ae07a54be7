"""The NetworkPolicy agent of real nodes: what NetworkPolicies say, kept as one nftables table on each node."""
