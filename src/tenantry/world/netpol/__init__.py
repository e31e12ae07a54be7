"""NetworkPolicies compiled to the nftables table of one node: pure."""
