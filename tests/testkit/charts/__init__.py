"""The objects that the most used public Helm charts create, with the values that `reviewed.toml` lists."""
