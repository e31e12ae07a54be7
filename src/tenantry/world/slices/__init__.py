"""Which nodes a slice gets, and which pods use it. Pure."""
