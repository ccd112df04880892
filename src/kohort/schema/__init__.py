"""Layer 1. Wire types, message declarations and the compiler of straight-line codecs."""
