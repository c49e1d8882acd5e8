"""One client's data as batches of rows of which none can spoil another."""

from collections.abc import Iterator

from fedgauge.data.examples import Data, Examples, read_batches
from fedgauge.data.files import ScoreFile
from fedgauge.data.keyed import PlacedRows
from fedgauge.data.oddities import LeftOut, in_short
from fedgauge.errors import InputError


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
        self._malformed = 0

    def __iter__(self) -> Iterator[Examples]:
        """The batches; counts rows of a text file that are left out."""
        batches = self._batches()
        while True:
            try:
                batch = next(batches, None)
            except (Exception, KeyboardInterrupt):
                raise
            except BaseException as error:  # a function that exits, a panic in Rust
                raise InputError(in_short(error)) from error
            if batch is None:
                return
            yield batch

    @property
    def left_out(self) -> LeftOut:
        """What of the rows read so far was left out."""
        if isinstance(self._data, PlacedRows):
            return {**self._data.odd, "malformed": self._malformed}
        return {"malformed": self._malformed}

    def _batches(self) -> Iterator[Examples]:
        if isinstance(self._data, ScoreFile | PlacedRows):
            return self._data.leniently(self._skip)
        return read_batches(self._data, Examples.leniently)

    def _skip(self) -> None:
        self._malformed += 1
