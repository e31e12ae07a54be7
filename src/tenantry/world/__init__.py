"""The world as numbers and names: quantities and quota keys; pure."""
