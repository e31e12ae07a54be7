"""Tunnels that peers open to their homes, because the homes cannot connect to them."""
