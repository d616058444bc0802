"""HTTP adapters to model endpoints, thin, on top of the wire codecs."""
