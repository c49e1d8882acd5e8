"""Numbers and curves of a distribution, each with where the truth lies."""
