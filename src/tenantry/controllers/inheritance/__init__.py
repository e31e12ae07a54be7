"""Hands objects of a namespace down to its children: what a child should have of them, and keeping it so.

bring   everything of the parent into one child, while it is made and when its spec changes
pass on one changed object to all children of its namespace
"""
