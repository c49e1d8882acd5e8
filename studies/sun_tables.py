"""The tables of Sun et al. 2022 as printed: deviations of the AUC over 100 runs, and AUCs."""

POSITIVES, NEGATIVES = 117_317, 341_090
LARGE_POSITIVES, LARGE_NEGATIVES = 1_173_981, 3_410_081
AUCS = (0.749383, 0.766477, 0.770219)  # of three epochs
LARGE_AUCS = (0.750509, 0.768045, 0.772007)

# Table 7, which holds Table 1.
CLIENTS = (10, 458, 1_000, 4_584, 45_840, 100_000, 458_407)
_SOME = (10, 458, 4_584, 45_840)
RESPONSE = {1.0: 2.17e-3, 2.0: 1.02e-3, 4.0: 3.49e-4, 8.0: 4.41e-5}
TABLE_7 = {
    (1.0, "laplace-global", "iid"): "1.22e-4 8.48e-4 1.24e-3 2.39e-3 8.08e-3 1.24e-2 2.77e-2",
    (1.0, "laplace-local", "iid"): "1.13e-4 9.64e-4 1.26e-3 2.26e-3 7.39e-3 1.10e-2 1.99e-2",
    (1.0, "laplace-local", "apart"): "8.98e-5 5.29e-4 8.49e-4 1.86e-3 5.45e-3 8.33e-3 1.81e-2",
    (1.0, "adaptive", "iid"): "5.15e-5 3.92e-4 1.22e-3 3.80e-3",
    (1.0, "adaptive", "apart"): "2.93e-5 1.22e-4 3.92e-4 1.03e-3",
    (2.0, "laplace-global", "iid"): "5.85e-5 4.15e-4 5.62e-4 1.28e-3 3.95e-3 5.21e-3 1.32e-2",
    (2.0, "laplace-local", "iid"): "5.74e-5 4.72e-4 5.78e-4 1.21e-3 4.09e-3 5.24e-3 8.86e-3",
    (2.0, "laplace-local", "apart"): "4.59e-5 2.91e-4 4.93e-4 9.45e-4 3.09e-3 4.38e-3 9.96e-3",
    (2.0, "adaptive", "iid"): "2.60e-5 1.84e-4 6.48e-4 1.66e-3",
    (2.0, "adaptive", "apart"): "1.59e-5 6.01e-5 1.52e-4 5.54e-4",
    (4.0, "laplace-global", "iid"): "2.92e-5 2.09e-4 3.26e-4 6.58e-4 1.88e-3 3.22e-3 7.02e-3",
    (4.0, "laplace-local", "iid"): "3.11e-5 1.94e-4 3.00e-4 5.80e-4 1.86e-3 2.40e-3 4.38e-3",
    (4.0, "laplace-local", "apart"): "2.49e-5 1.48e-4 2.05e-4 4.44e-4 1.53e-3 2.26e-3 4.39e-3",
    (4.0, "adaptive", "iid"): "1.36e-5 8.20e-5 2.87e-4 9.08e-4",
    (4.0, "adaptive", "apart"): "7.80e-6 2.81e-5 8.72e-5 2.77e-4",
    (8.0, "laplace-global", "iid"): "1.54e-5 9.82e-5 1.53e-4 3.31e-4 1.05e-3 1.58e-3 2.99e-3",
    (8.0, "laplace-local", "iid"): "1.51e-5 1.06e-4 1.40e-4 3.27e-4 8.52e-4 1.35e-3 2.29e-3",
    (8.0, "laplace-local", "apart"): "1.06e-5 6.99e-5 1.14e-4 2.19e-4 7.50e-4 1.16e-3 2.22e-3",
    (8.0, "adaptive", "iid"): "7.01e-6 4.55e-5 1.37e-4 4.61e-4",
    (8.0, "adaptive", "apart"): "3.89e-6 1.36e-5 4.34e-5 1.38e-4",
}

# Table 2: the numbers of both classes are taken as known, so nothing is private.
TABLE_2_CLIENTS = (10, 1_000, 100_000, 458_407)
TABLE_2 = {
    (1.0, "laplace-global", "iid"): "4.84e-5 5.26e-4 4.45e-3 1.10e-2",
    (1.0, "laplace-local", "iid"): "4.81e-5 4.66e-4 4.25e-3 6.44e-3",
    (1.0, "laplace-local", "apart"): "3.40e-5 2.98e-4 2.76e-3 6.08e-3",
    (2.0, "laplace-global", "iid"): "2.61e-5 2.58e-4 2.37e-3 5.65e-3",
    (2.0, "laplace-local", "iid"): "2.61e-5 2.48e-4 2.10e-3 2.87e-3",
    (2.0, "laplace-local", "apart"): "1.48e-5 1.51e-4 1.38e-3 3.20e-3",
    (4.0, "laplace-global", "iid"): "1.30e-5 1.21e-4 1.21e-3 2.68e-3",
    (4.0, "laplace-local", "iid"): "1.23e-5 1.20e-4 1.14e-3 1.56e-3",
    (4.0, "laplace-local", "apart"): "6.63e-6 7.22e-5 6.20e-4 1.69e-3",
    (8.0, "laplace-global", "iid"): "6.29e-6 5.94e-5 6.12e-4 1.34e-3",
    (8.0, "laplace-local", "iid"): "5.79e-6 6.32e-5 5.07e-4 8.09e-4",
    (8.0, "laplace-local", "apart"): "3.98e-6 3.70e-5 3.44e-4 8.53e-4",
}

# Randomized response by epsilon and epoch: the AUC of flipped labels (3), and the deviation of
# the AUC made right again, on the small (5) and on the large set (6).
TABLE_3 = {
    0.1: (0.509429, 0.510137, 0.510237),
    0.5: (0.546986, 0.550344, 0.550862),
    1.0: (0.592421, 0.598951, 0.600010),
    2.0: (0.667666, 0.679436, 0.681911),
    4.0: (0.735230, 0.751306, 0.754892),
    10.0: (0.749343, 0.766438, 0.770177),
}
TABLE_5 = {
    0.1: (2.41e-2, 2.40e-2, 2.62e-2),
    0.25: (8.69e-3, 8.76e-3, 7.57e-3),
    0.5: (5.39e-3, 4.79e-3, 4.56e-3),
    1.0: (2.11e-3, 2.09e-3, 2.23e-3),
    2.0: (9.43e-4, 8.76e-4, 1.01e-3),
    3.0: (5.46e-4, 4.62e-4, 6.14e-4),
    4.0: (3.75e-4, 3.33e-4, 3.21e-4),
    5.0: (2.05e-4, 2.14e-4, 1.33e-4),
    10.0: (1.77e-5, 1.84e-5, 1.67e-5),
}
TABLE_6 = {
    0.1: (7.52e-3, 6.96e-3, 6.48e-3),
    0.25: (2.90e-3, 2.85e-3, 3.26e-3),
    0.5: (1.32e-3, 1.62e-3, 1.39e-3),
    1.0: (5.51e-4, 7.27e-4, 8.11e-4),
    2.0: (3.03e-4, 3.03e-4, 3.60e-4),
    3.0: (1.53e-4, 1.82e-4, 1.73e-4),
    4.0: (9.45e-5, 1.11e-4, 1.20e-4),
    5.0: (5.87e-5, 6.73e-5, 6.11e-5),
    10.0: (5.37e-6, 5.83e-6, 5.04e-6),
}

# Precision among the highest scores.
TABLE_8 = {
    10: 0.8,
    50: 0.86,
    100: 0.79,
    500: 0.768,
    1_000: 0.774,
    5_000: 0.7828,
    10_000: 0.7519,
    50_000: 0.6159,
    100_000: 0.5227,
}

# The AUC of scores that have Laplace noise of their own.
TABLE_9 = {
    1.0: (0.5374, 0.5416, 0.5420),
    2.0: (0.5725, 0.5795, 0.5830),
    3.0: (0.5976, 0.6105, 0.6130),
    4.0: (0.6239, 0.6367, 0.6387),
    5.0: (0.6413, 0.6569, 0.6607),
    6.0: (0.6571, 0.6732, 0.6786),
    7.0: (0.6698, 0.6870, 0.6903),
    8.0: (0.6797, 0.6976, 0.7022),
    9.0: (0.6885, 0.7060, 0.7115),
    10.0: (0.6952, 0.7124, 0.7191),
    50.0: (0.7454, 0.7625, 0.7663),
    100.0: (0.7484, 0.7654, 0.7692),
    1000.0: (0.7494, 0.7665, 0.7702),
}


def pairs_of(table: str) -> dict[tuple[str, str, int, float], float]:
    """Deviations of Table 7 or 2 by mechanism, split, clients and epsilon."""
    printed = TABLE_7 if table == "7" else TABLE_2
    found = {}
    for (epsilon, mechanism, split), row in printed.items():
        values = [float(value) for value in row.split()]
        clients = TABLE_2_CLIENTS if table == "2" else CLIENTS if len(values) > 4 else _SOME
        for parties, value in zip(clients, values, strict=True):
            found[mechanism, split, parties, epsilon] = value
    return found
