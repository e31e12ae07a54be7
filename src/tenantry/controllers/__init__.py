"""A folder per kind: gather (reads), desired and status (no I/O), controller (glue)."""
