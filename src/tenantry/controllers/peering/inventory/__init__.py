"""What other programs read about this cluster and its peers: KEP-2149 and KEP-4322."""
