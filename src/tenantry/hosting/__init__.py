"""What a hosted API server needs around it: so far the gate that all of its outgoing connections pass."""
