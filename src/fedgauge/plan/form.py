"""Plans as files: how an axis is written in them, and what TOML has no word for."""

from pathlib import Path
from typing import Any

import msgspec

from fedgauge.binning.axis import Axis, AxisSpec
from fedgauge.errors import PlanError


def encode_axis(value: Any) -> Any:
    """Plain data for an axis: msgspec's hook for types it does not know."""
    if isinstance(value, Axis):
        return value.spec
    raise NotImplementedError(type(value).__name__)


def decode_axis(kind: type, value: Any) -> Any:
    """The inverse of :func:`encode_axis`."""
    if kind is Axis:
        return Axis.from_spec(msgspec.convert(value, AxisSpec))
    raise NotImplementedError(kind.__name__)


def without_none(value: Any) -> Any:
    """Plain data without what TOML has no null for: a missing field reads back as None."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value


def is_toml(path: Path) -> bool:
    """Whether a plan's file is TOML, and not JSON."""
    if path.suffix not in (".json", ".toml"):
        raise PlanError(f"a plan file ends in .json or .toml, got {path.name!r}.")
    return path.suffix == ".toml"
