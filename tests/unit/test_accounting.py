import math
import sys

import pytest
from plans import plan_for
from refusals import refused

from fedgauge import DistributedDP, InputError, SecureAggregation
from fedgauge.errors import PlanError
from fedgauge.privacy.accounting import (
    calibrate_gaussian,
    calibrate_skellam,
    compose,
    gaussian_delta,
    gaussian_tau,
    skellam_delta,
)


def test_calibrated_noise_is_enough_and_little_less_is_not():
    for epsilon, delta, options in (
        (1.0, 1e-6, {"levels": 3}),
        (0.3, 1e-9, {"levels": 2, "moves": 2}),
        (0.5, 1e-5, {"levels": 1, "cap": 10}),
        (8.0, 1e-3, {"levels": 1}),
    ):
        levels, rest = options["levels"], {k: v for k, v in options.items() if k != "levels"}
        mean = calibrate_skellam(epsilon, delta, **options)
        assert skellam_delta(epsilon, means=[mean] * levels, **rest) <= delta
        assert skellam_delta(epsilon, means=[mean / 1.0011] * levels, **rest) > delta
        sigma2 = calibrate_gaussian(epsilon, delta, parties=2, **options) if epsilon < 8 else None
        if sigma2:
            shared = {"parties": 2, **rest}
            assert gaussian_delta(epsilon, sigma2s=[sigma2] * levels, **shared) <= delta
            assert gaussian_delta(epsilon, sigma2s=[sigma2 / 1.0011] * levels, **shared) > delta


def test_gaussian_shares_cost_more_the_more_there_are_at_every_node():
    alone = calibrate_gaussian(1.0, 1e-6, levels=2, parties=1)
    shared = calibrate_gaussian(1.0, 1e-6, levels=2, parties=50)  # 2 tau is 2% of epsilon
    assert 1.01 * alone < shared < 1.1 * alone
    assert gaussian_delta(1.0, sigma2s=[shared] * 2, parties=50) <= 1e-6
    one = gaussian_delta(0.3, sigma2s=[256.0], parties=1)
    assert gaussian_tau(256.0, 100) < 1e-9
    assert gaussian_delta(0.3, sigma2s=[256.0], parties=100) == pytest.approx(one, rel=1e-6)
    assert gaussian_tau(256.0, 1000) > 10
    assert gaussian_delta(0.3, sigma2s=[256.0], parties=1000) == 1
    assert gaussian_tau(0.01, 1) == 0
    assert gaussian_tau(0.5, 2) < 1
    assert gaussian_tau(0.499, 2) == math.inf
    sigma2, parties, epsilon = 200 * 0.75, 200, 0.5
    tau = gaussian_tau(sigma2, parties)
    ideal = gaussian_delta(epsilon - 6 * tau, sigma2s=[sigma2] * 3, parties=1, moves=2)
    paid = gaussian_delta(epsilon, sigma2s=[sigma2] * 3, parties=parties, moves=2)
    assert paid == pytest.approx(math.exp(3 * tau) * ideal, rel=1e-9)
    assert paid > gaussian_delta(epsilon, sigma2s=[sigma2] * 3, parties=1, moves=2)


def test_calibration_refuses_many_small_shares_and_names_a_remedy_that_works():
    for parties in (100, 1000):
        told = f"{parties} clients.*5%.*skellam.*polya.*smaller eps"
        refused(PlanError, told, calibrate_gaussian, 1.0, 1e-6, levels=2, parties=parties)
    sigma2 = calibrate_gaussian(0.3, 1e-6, levels=2, parties=100)
    assert gaussian_delta(0.3, sigma2s=[sigma2] * 2, parties=100) <= 1e-6


def test_cut_tails_count_as_failures_and_noise_next_to_none_promises_nothing():
    # No outcome that is kept has a loss near 50; what is left is the allowance for the rest.
    assert skellam_delta(50.0, means=[10.0]) == pytest.approx(1e-20, rel=1e-6, abs=0)
    for mean in (5e-324, 1e-310, 1e-307):
        assert skellam_delta(1.0, means=[mean, 40.0]) == skellam_delta(1.0, means=[mean]) == 1.0


def stated(privacy):
    return plan_for(privacy, (16,)).statement("enforced")


def test_plans_and_statements_of_results_add_up():
    assert compose([]) == (0, 0)
    assert compose([(0.1, 1e-6)] * 10) == (1.0, pytest.approx(1e-5))
    assert compose(iter([(1.0, 0.7), (1.0, 0.7)])) == (2.0, 1.0)
    one = stated(DistributedDP(0.5, delta=1e-6, noise="skellam"))
    assert compose([one, one, (0.25, 0.0)]) == (1.25, pytest.approx(2 * one.delta))
    assert one.delta > 0
    assert compose(stated(DistributedDP(0.5)) for _ in range(3))[0] == 1.5
    # An exact sum has no epsilon that could be added.
    exact, noisy = stated(SecureAggregation()), stated(DistributedDP(0.5))
    assert compose([exact])[0] == math.inf
    assert compose([noisy, exact, exact])[0] == math.inf


def test_promises_to_different_units_do_not_add_up():
    for options in ({"unit": "subject", "max_per_unit": 2}, {"neighbours": "replace-one"}):
        other = stated(DistributedDP(0.5, **options))
        with pytest.raises(
            InputError, match=r"protect different things.*Compose those of one unit"
        ):
            compose([stated(DistributedDP(0.5)), other])
        assert compose([other, other])[0] == 1.0


def test_bad_values_are_refused():
    for call, message in (
        (lambda: skellam_delta(1.0, means=[1.0], cap=0), "cap must be a whole number"),
        (lambda: skellam_delta(-1.0, means=[1.0]), "epsilon must be at least 0"),
        (lambda: skellam_delta(math.nan, means=[1.0]), "epsilon must be at least 0"),
        (lambda: skellam_delta(1.0, means=[]), "every level needs noise"),
        (lambda: skellam_delta(1.0, means=[1.0, 0.0]), "every level needs noise"),
        (lambda: skellam_delta(1.0, means=[1e9]), "Raise epsilon"),
        (lambda: skellam_delta(1.0, means=[1.0], moves=0), "moves must be a whole number"),
        (lambda: gaussian_delta(1.0, sigma2s=[9.0], parties=0), "parties must be a whole"),
        (lambda: gaussian_delta(1.0, sigma2s=[9.0], parties=99, cap=0), "cap must be a whole"),
        (lambda: calibrate_skellam(0.0, 1e-6, levels=1), "needs epsilon above 0"),
        (lambda: calibrate_skellam(1.0, 0.0, levels=1), "delta from 1e-12"),
        (lambda: calibrate_skellam(1.0, 1.0, levels=1), "to below 1"),
        (lambda: calibrate_skellam(1.0, 1e-6, levels=0), "levels must be a whole number"),
        (lambda: calibrate_skellam(0.001, 1e-6, levels=9, cap=99), "lower the cap"),
    ):
        refused(PlanError, message, call)


def test_without_dp_accounting_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    for call in (
        lambda: skellam_delta(1.0, means=[1.0]),
        lambda: gaussian_delta(1.0, sigma2s=[1.0], parties=1),
        lambda: calibrate_skellam(1.0625, 1e-6, levels=1),
        lambda: calibrate_gaussian(1.0625, 1e-6, levels=1, parties=1),
    ):
        refused(PlanError, r"pip install 'fedgauge\[privacy\]'", call)
