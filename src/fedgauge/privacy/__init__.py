"""What each privacy model makes a client do and lets a server claim."""

from fedgauge.privacy.accounting import compose
from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.models import (
    DifferentialPrivacy,
    DistributedDP,
    LocalDP,
    PrivacyModel,
    PrivacyStatement,
    SecureAggregation,
    Sensitivity,
)

__all__ = [
    "Cohort",
    "DifferentialPrivacy",
    "DistributedDP",
    "LocalDP",
    "PrivacyModel",
    "PrivacyStatement",
    "SecureAggregation",
    "Sensitivity",
    "compose",
]
