"""How each kind of object is translated to the lower side, and its status back: a file for each kind, pure."""
