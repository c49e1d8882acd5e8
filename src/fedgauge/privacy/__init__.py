"""What each privacy model makes a client do and lets a server claim."""

from fedgauge.privacy.cohort import Cohort
from fedgauge.privacy.specs import PrivacyStatement, SecureAggregation

__all__ = ["Cohort", "PrivacyStatement", "SecureAggregation"]
