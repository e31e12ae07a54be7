"""The commands that run for ever: the operator, and the agents of real nodes."""
