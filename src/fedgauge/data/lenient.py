"""One client's data as batches of rows of which none can spoil another."""

from collections.abc import Iterator

from fedgauge.data.examples import Data, Examples, read_batches
from fedgauge.data.files import ScoreFile


class LenientRows:
    """The data of a client, batch after batch; rows may hold anything.

    What concerns the data as a whole is refused as elsewhere: columns of unequal length, of a
    wrong shape or type, a file that breaks off.

    Parameters
    ----------
    data
        The client's data, as for :func:`fedgauge.evaluate`.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        self.malformed = 0

    def __iter__(self) -> Iterator[Examples]:
        """The batches; counts rows of a text file that are left out."""
        if isinstance(self._data, ScoreFile):
            return self._data.leniently(self._skip)
        return read_batches(self._data, Examples.leniently)

    def _skip(self) -> None:
        self.malformed += 1
