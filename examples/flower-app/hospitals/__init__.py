"""A Flower app: one model, unlike hospitals, evaluated on their pooled data."""
