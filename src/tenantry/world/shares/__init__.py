"""The shares of a quota tree: amounts, the tree, and the moves between shares. Pure."""
