"""Real nodes on this machine: requirements -> network, cgroups -> settings -> init, node -> images."""
