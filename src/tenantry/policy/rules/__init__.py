"""The rules, one file for each family: CEL, Python, fix, example and documentation of a rule stand together. Pure."""
