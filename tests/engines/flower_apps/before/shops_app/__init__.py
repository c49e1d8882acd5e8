"""A Flower app as many are: a model, a strategy of its own, functions at the nodes."""
