"""The platform's users and the shops' orders, as made up for a test."""

import numpy as np

USERS = np.array([f"user-{i}" for i in range(4000)])


def chances():
    """How likely each user is to buy."""
    return np.random.default_rng(0).beta(1, 9, len(USERS))


def read_orders(shop):
    """Users whom a shop saw, and which of them bought."""
    bought = np.random.default_rng(1).random(len(USERS)) < chances()
    return USERS[shop::4], bought[shop::4]


def score_users():
    """The platform's model."""
    noise = np.random.default_rng(2).normal(0, 0.3, len(USERS))
    return USERS, chances() * np.exp(noise)
