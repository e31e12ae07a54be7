"""The mirror: keeps lower objects of one namespace as translations of upper objects, and returns their status."""
