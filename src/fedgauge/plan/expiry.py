"""Until when a plan may be used, by the clock of whoever is asked to."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from fedgauge.errors import PlanError

# TOML's own moments come with +00:00. Some versions of Python read 24:00:00 as the next day.
_FORM: Final = re.compile(r"(\d{4}-\d\d-\d\d)(T(?!24)\d\d:\d\d:\d\d)?(?(2)(Z|\+00:00))")
_LAST_SECOND: Final = "T23:59:59"


def now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(UTC)


def written(moment: Any) -> str:
    """A moment in the one form that plans are stored with; a day stands for its last second.

    Examples
    --------
    >>> written("2026-12-31"), written("2026-12-31T18:00:00Z")
    ('2026-12-31T23:59:59Z', '2026-12-31T18:00:00Z')
    """
    if not isinstance(moment, str) or not (form := _FORM.fullmatch(moment)):
        raise PlanError(_malformed(moment))
    stored = f"{form[1]}{form[2] or _LAST_SECOND}Z"
    try:
        datetime.fromisoformat(stored)
    except ValueError:  # no such day or hour
        raise PlanError(_malformed(moment)) from None
    return stored


def is_past(moment: str) -> bool:
    """Whether the clock is beyond a moment as it is stored; its own second is not."""
    return now().replace(microsecond=0) > datetime.fromisoformat(moment)


def _malformed(moment: Any) -> str:
    got = repr(moment)[:40] if isinstance(moment, str) else type(moment).__name__
    return (
        "not_after must be a day or a moment in UTC, such as 2026-12-31 or "
        f"2026-12-31T18:00:00Z, got {got}."
    )
