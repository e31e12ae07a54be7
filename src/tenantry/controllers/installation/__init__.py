"""Keeps the installed policies, bindings, kinds and roles as this version ships them."""
