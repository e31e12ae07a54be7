"""The import from other tools: one pure reader for each, and the form that all of them return."""
