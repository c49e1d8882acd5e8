"""A client's own trust anchor: its key, whom it trusts, its limits and its privacy ledger."""

from fedgauge.site.ledger import Ledger
from fedgauge.site.ledger_entries import Account, Balance, Cost, Entry
from fedgauge.site.policy import Policy
from fedgauge.site.setup import (
    add_approver,
    add_trust,
    add_witness,
    create_site,
    name_dataset,
    replace_trust,
)
from fedgauge.site.site import Site

__all__ = [
    "Account",
    "Balance",
    "Cost",
    "Entry",
    "Ledger",
    "Policy",
    "Site",
    "add_approver",
    "add_trust",
    "add_witness",
    "create_site",
    "name_dataset",
    "replace_trust",
]
