"""Rows that hold anything at all."""


class Raises:
    """An object that nothing can be done with: whatever is asked of it raises."""

    def _raise(self, *_):
        raise RuntimeError("the value is 0.987654321")

    __float__ = __int__ = __eq__ = __hash__ = __str__ = __bool__ = __len__ = _raise
