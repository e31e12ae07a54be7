"""The commands that run until they are stopped: the operator, and the agents of real nodes."""
