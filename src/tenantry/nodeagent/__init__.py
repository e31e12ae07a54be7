"""The agent of a node that removes what one tenant left there before the next one gets the node."""
