"""Admits contributed nodes, labels them as agreed, and removes them when their contributors withdraw them."""
