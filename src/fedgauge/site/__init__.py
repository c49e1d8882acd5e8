"""A client's own trust anchor: its key, whom it trusts, its limits and its privacy ledger."""

from fedgauge.site.consortium import Card, Consortium
from fedgauge.site.ledger import Ledger
from fedgauge.site.ledger_entries import Account, Balance, Cost, Entry
from fedgauge.site.policy import Policy
from fedgauge.site.setup import (
    add_approver,
    add_trust,
    add_witness,
    card_of,
    create_site,
    name_dataset,
    offer,
    rekey,
    replace_trust,
)
from fedgauge.site.site import Site

__all__ = [
    "Account",
    "Balance",
    "Card",
    "Consortium",
    "Cost",
    "Entry",
    "Ledger",
    "Policy",
    "Site",
    "add_approver",
    "add_trust",
    "add_witness",
    "card_of",
    "create_site",
    "name_dataset",
    "offer",
    "rekey",
    "replace_trust",
]
