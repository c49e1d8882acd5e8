"""Local reports as bytes, and the server that takes them in."""
