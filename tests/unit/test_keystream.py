import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import fedgauge
from fedgauge.engines import simulation
from fedgauge.privacy import DistributedDP, keystream
from fedgauge.privacy.keystream import KeptKeystream, Keystream, SimulatedKeystream

CLIENTS = {name: ([0, 1], [0.2, 0.8]) for name in "abc"}
SOURCES = sorted(Path(keystream.__file__).parent.glob("*.py"))


def test_words_are_64_bits_and_fill_them():
    words = SimulatedKeystream(1).words(1000)
    assert words.dtype == np.uint64
    assert words.shape == (1000,)
    assert np.bitwise_or.reduce(words) == np.uint64(2**64 - 1)
    assert np.bitwise_and.reduce(words) == 0
    assert len(np.unique(words)) == 1000


@pytest.mark.parametrize("parts", [(8,), (3, 5), (1,) * 8, (0, 7, 0, 1)])
def test_a_stream_does_not_depend_on_how_it_is_read(parts):
    whole, pieces = SimulatedKeystream(7), SimulatedKeystream(7)
    read = np.concatenate([pieces.words(count) for count in parts])
    assert read.tolist() == whole.words(8).tolist()


def test_every_keystream_has_a_key_of_its_own():
    drawn = {tuple(Keystream().words(4).tolist()) for _ in range(50)}
    assert len(drawn) == 50


def test_a_keystream_is_keyed_by_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(keystream.os, "urandom", lambda size: asked.append(size) or bytes(size))
    first, second = Keystream(), Keystream()
    assert asked == [32, 32]
    assert first.words(4).tolist() == second.words(4).tolist()


def test_a_keystream_takes_no_seed():
    assert not inspect.signature(Keystream).parameters
    with pytest.raises(TypeError):
        Keystream(1)


def test_simulated_words_repeat_and_differ_by_seed():
    same = [SimulatedKeystream(5).words(16).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert len({tuple(SimulatedKeystream(seed).words(4).tolist()) for seed in range(50)}) == 50


def test_without_a_seed_an_evaluation_never_simulates_its_words(monkeypatch):
    def refuse(seed):
        raise AssertionError(seed)

    monkeypatch.setattr(simulation, "SimulatedKeystream", refuse)
    privacy = DistributedDP(1.0)
    fedgauge.evaluate(CLIENTS, privacy=privacy, tree=(2,))
    with pytest.raises(AssertionError):
        fedgauge.evaluate(CLIENTS, privacy=privacy, tree=(2,), seed=1)


def test_with_a_seed_an_evaluation_repeats_and_without_it_does_not():
    def counts(seed):
        privacy = DistributedDP(0.01)
        result = fedgauge.evaluate(CLIENTS, privacy=privacy, tree=(4, 4), seed=seed)
        return result.released.counts.tolist()

    assert counts(3) == counts(3)
    assert counts(3) != counts(4)
    assert counts(None) != counts(None)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_privacy_has_no_other_randomness(source):
    # os.urandom is the keystream's alone; ordinary generators are nobody's.
    text = source.read_text()
    wrong = r"default_rng|np\.random|numpy\.random|^\s*(import|from) (random|secrets)\b"
    assert re.search(wrong, text, flags=re.MULTILINE) is None
    assert ("urandom" in text) == (source.stem == "keystream")


def test_words_of_a_secret_take_a_secret():
    with pytest.raises(ValueError, match="32 bytes or more"):
        KeptKeystream(bytes(31), b"purpose")
    drawn = {
        tuple(KeptKeystream(secret * 32, purpose).words(4).tolist())
        for secret in (b"a", b"b")
        for purpose in (b"noise on 1", b"noise on 2")
        for _ in range(2)
    }
    assert len(drawn) == 4
