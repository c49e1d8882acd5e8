"""What each privacy model makes a client do and lets a server claim."""

from fedgauge.privacy.accounting import compose
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.distributed import DistributedDP
from fedgauge.privacy.local import LocalDP
from fedgauge.privacy.models import (
    Claim,
    PrivacyModel,
    PrivacyStatement,
    SecureAggregation,
    Sensitivity,
)

AnyPrivacyModel = SecureAggregation | DistributedDP | LocalDP  # what a plan can hold

__all__ = [
    "AnyPrivacyModel",
    "Claim",
    "Cohort",
    "DistributedDP",
    "LocalDP",
    "PrivacyModel",
    "PrivacyStatement",
    "SecureAggregation",
    "Sensitivity",
    "compose",
]
