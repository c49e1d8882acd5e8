"""What stands for one number: it compares, adds up, rounds and formats as that number."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Number:
    """Takes part in arithmetic as its `value`, and what comes out is a float.

    So a difference of two estimates is a plain number: what interval it has depends on whether
    both come from the same examples, which an estimate does not know.
    """

    __slots__ = ()
    value: float

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # there is no array yet that could be shared
        return np.array(self.value, dtype=dtype)

    def __lt__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value < x

    def __le__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value <= x

    def __gt__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value > x

    def __ge__(self, other: object) -> bool:
        return NotImplemented if (x := _value(other)) is None else self.value >= x

    def __add__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value + x

    def __sub__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value - x

    def __mul__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value * x

    def __truediv__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else self.value / x

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else x - self.value

    def __rtruediv__(self, other: object) -> float:
        return NotImplemented if (x := _value(other)) is None else x / self.value

    def __neg__(self) -> float:
        return -self.value

    def __abs__(self) -> float:
        return abs(self.value)


def _value(other: object) -> float | None:
    """The number that another operand stands for; None where it is none, such as an array."""
    if isinstance(other, Number):
        return other.value
    return float(other) if isinstance(other, Real) else None
