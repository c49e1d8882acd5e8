"""Types of the arrays that pass between packages, and of what many packages are asked."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Tree = Literal["auto", "flat"] | tuple[int, ...]  # branchings over bins, or how to choose them
