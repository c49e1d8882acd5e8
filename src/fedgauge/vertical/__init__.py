"""Labels and scores apart: who has which examples, and which bins these are in."""
