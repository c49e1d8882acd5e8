"""The privacy models as plain data, and what each one states about a result."""

from typing import Literal

import msgspec

from fedgauge.privacy.cohort import Cohort

Claim = Literal["enforced", "simulated"]


class PrivacyStatement(msgspec.Struct, frozen=True):
    """What a result may claim about the privacy of the data behind it.

    `epsilon` and `delta` are None where no differential privacy is claimed; `unit` and
    `neighbours` then have no meaning and are None too. `public_inputs` names the hints
    the plan was made from. `claim` is ``"enforced"`` only when a real protocol ran
    between the parties; everything computed in one process is ``"simulated"``.
    """

    model: str
    unit: str | None
    neighbours: str | None
    epsilon: float | None
    delta: float | None
    cohort: Cohort
    public_inputs: tuple[str, ...]
    claim: Claim


class SecureAggregation(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="model",
    tag="secure-aggregation",
):
    """Release the exact sum over the clients and nothing else.

    No noise is added, so there is no differential privacy: the sum itself is public,
    and sums over cohorts that differ by one client reveal that client's histogram.
    """

    def statement(self, cohort: Cohort, claim: Claim) -> PrivacyStatement:
        """What a result under this model may claim."""
        return PrivacyStatement(
            model="secure-aggregation",
            unit=None,
            neighbours=None,
            epsilon=None,
            delta=None,
            cohort=cohort,
            public_inputs=(),
            claim=claim,
        )
