"""Copies objects of a namespace into its children, and keeps the copies in sync.

Subnamespace controller ─► Propagation.inherit_all   every object of the parent, into one child
InheritanceController   ─► Propagation.propagate     one object that changed, into every child
└─► gather ─► desired.plan ─► engine.copies ─► status
"""
