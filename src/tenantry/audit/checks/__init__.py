"""The checks as data, a file for each area."""
