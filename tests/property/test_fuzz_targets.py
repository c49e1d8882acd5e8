"""What `make fuzz` runs reads its seeds, and refuses mutants with errors of ours alone."""

import pytest
from mutants import mutants
from targets import TARGETS, ready

DEAR = {"commands", "csv", "packed-csv", "result", "signed-result", "trend"}


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning", "ignore::fedgauge.InputWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_a_target(name):
    with ready(name) as (seeds, attempt):
        # Where seeds are not read, mutants are refused for that alone.
        assert [attempt(seed) for seed in seeds] == [True] * len(seeds)
        count = 20 if name in DEAR else 200
        for data in mutants(1, TARGETS[name].form, seeds, count):
            attempt(data)
