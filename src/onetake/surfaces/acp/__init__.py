"""The Agent Client Protocol over stdio, spoken by hand: the official SDK takes too long to import."""
