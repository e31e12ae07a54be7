"""What each node runs to remove what one tenant left there before another comes."""
