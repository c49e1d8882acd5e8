"""A client's own trust anchor: its key, whom it trusts, its limits and its privacy ledger."""

from fedgauge.site.anchor import Site
from fedgauge.site.entries import Account, Balance, Cost, Entry
from fedgauge.site.keys import SigningKey, key_from_text, key_to_text, verify
from fedgauge.site.ledger import Ledger
from fedgauge.site.policy import Policy
from fedgauge.site.setup import add_trust, create_site

__all__ = [
    "Account",
    "Balance",
    "Cost",
    "Entry",
    "Ledger",
    "Policy",
    "SigningKey",
    "Site",
    "add_trust",
    "create_site",
    "key_from_text",
    "key_to_text",
    "verify",
]
