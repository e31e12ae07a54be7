"""What the operator keeps inside a control plane with nodes of its own: rights of nodes, and add-ons."""
