"""The embedded default: control planes, nodes and clusters on this machine. Linux only."""
