"""Folders of Parquet and CSV files; columns may stand in names of folders (Hive partitions)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from fedgauge.data.files import WORDS, Opener, checked_opener
from fedgauge.data.text_files import Dialect, OpenTable, Skip, Types
from fedgauge.errors import InputError, located


def open_folder(folder: Path, wanted: Sequence[str], dialect: Dialect) -> dict[Path | str, Opener]:
    """How to open each file in a folder, at any depth; refuses one without a wanted column.

    Below a folder ``site=a`` all rows have ``a`` in the column ``site``. Files and folders whose
    names begin with a dot or an underscore are none of the data's.
    """
    openers: dict[Path | str, Opener] = {}
    with located(str(folder)):
        for path, values in _files(folder, wanted):
            inside = [name for name in wanted if name not in values]
            openers[path] = _opener(checked_opener(path, inside, dialect), values)
        if not openers:
            raise InputError("there are no files in this folder. Check its name.")
    return openers


def _files(folder: Path, wanted: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, str | None]]]:
    """The files, and what the names of their folders say of the wanted columns."""
    import pyarrow.dataset as ds  # here, for it takes a while and most sources are no folders

    # As text: 01 is a name, and not the number 1.
    schema = pa.schema([(name, pa.string()) for name in wanted])
    hive = ds.partitioning(schema, flavor="hive")
    try:
        found = ds.dataset(folder, format="parquet", schema=schema, partitioning=hive)
    except (pa.ArrowException, OSError):
        raise InputError("the folder cannot be read. Check who owns it.") from None
    for fragment in sorted(found.get_fragments(), key=lambda each: each.path):
        yield Path(fragment.path), ds.get_partition_keys(fragment.partition_expression)


def _opener(inner: Opener, values: Mapping[str, str | None]) -> Opener:
    """The same file with more columns, each of one value."""

    def opened(types: Types, skip: Skip) -> OpenTable:
        added = {name: values[name] for name in types if name in values}
        table = inner({name: kind for name, kind in types.items() if name not in added}, skip)
        schema = table.schema
        for name in added:
            schema = schema.append(pa.field(name, WORDS))
        return OpenTable(schema, (_with(batch, added) for batch in table.batches))

    return opened


def _with(batch: pa.RecordBatch, values: Mapping[str, str | None]) -> pa.RecordBatch:
    for name, value in values.items():
        words = pa.array([] if value is None else [value], pa.string())
        codes = pa.repeat(pa.scalar(None if value is None else 0, pa.int32()), len(batch))
        batch = batch.append_column(
            pa.field(name, WORDS), pa.DictionaryArray.from_arrays(codes, words)
        )
    return batch
