"""A folder per kind: gather (reads), desired (pure), status (pure), controller (glue)."""
