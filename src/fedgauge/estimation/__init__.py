"""From released sums to counts, and from counts to distributions."""
