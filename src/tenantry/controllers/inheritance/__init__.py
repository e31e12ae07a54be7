"""Hands objects of a namespace down to its children: what a child should have of them, and keeping it so.

inherit_all   copies every object of the parent into one child, when the child is created and when its spec changes
propagate     copies one changed object into all children of its namespace
"""
