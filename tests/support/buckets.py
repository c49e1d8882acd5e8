"""Buckets in memory that go wrong in ways that real ones do, and evaluations that pass through."""

import random
import re

import fsspec
import numpy as np
from consortium import NAMES
from counts import counts_of
from exchange import CLIENTS, World
from fsspec.implementations.memory import MemoryFileSystem

import fedgauge as fg
from fedgauge.engines.exchange import Exchange
from fedgauge.engines.folder import open_folder

SECRET = "hunter2"  # noqa: S105  (what no error may hold)
THREE = NAMES[:3]
TRIES = 400


class Bucket(MemoryFileSystem):
    """Objects that are written once. `faults` are called by name, if they are there."""

    protocol = "bucket"
    store = {}  # noqa: RUF012  (shared by all who open it, as the driver does)
    pseudo_dirs = [""]  # noqa: RUF012
    forbidden = []  # noqa: RUF012  (what was tried that not every bucket can do)
    faults = None

    @classmethod
    def reset(cls):
        # Here, since this file may be imported under two names, and each has a class of its own.
        fsspec.register_implementation("bucket", cls, clobber=True)
        cls.store.clear()
        cls.forbidden.clear()
        cls.pseudo_dirs[:] = [""]
        cls.faults = None

    def _tell(self, name, *arguments):
        return getattr(self.faults, name, lambda *_: None)(*arguments)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("bucket://", "memory://"))

    def ls(self, path, **kwargs):
        self._tell("before", "list")
        found = super().ls(path, **kwargs)
        return found if (old := self._tell("listing", path, found)) is None else old

    def info(self, path, **kwargs):
        self._tell("before", "look")
        return super().info(path, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        self._tell("before", "read")
        data = super().cat_file(path, start, end, **kwargs)
        return data if (cut := self._tell("reading", data)) is None else cut

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode != "create":
            self.forbidden.append(("overwrite", path))
        self._tell("before", "write")
        self._tell("writing", self.store, path, value)
        super().pipe_file(path, value, mode, **kwargs)
        self._tell("written", self.store, path)

    def rm(self, path, **_):
        self.forbidden.append(("remove", path))

    rm_file = _rm = rm

    def mv(self, one, other, **_):
        self.forbidden.append(("rename", one, other))


def put(name, data, folder="/run"):
    """As a stranger does, who may write to the bucket; what was there is gone."""
    MemoryFileSystem.pipe_file(Bucket(), f"{folder}/{name}", data)


class Faults:
    """Goes wrong now and then, by a seed, for as long as `left` says."""

    rate = 0.03  # of many small steps

    def __init__(self, seed):
        self.dice = random.Random(seed)  # noqa: S311
        self.happened = 0

    def now(self):
        happens = self.dice.random() < self.rate
        self.happened += happens
        return happens


class Errors(Faults):
    """Errors before a step, and after an object has arrived; they hold passwords."""

    kind = OSError

    def before(self, _):
        if self.now():
            raise self.kind(f"https://user:{SECRET}@bucket.example/?X-Amz-Signature={SECRET}")

    def written(self, *_):
        self.before(None)


class OldListings(Faults):
    """A listing of some time ago."""

    rate = 0.7

    def __init__(self, seed):
        super().__init__(seed)
        self.past = {}

    def listing(self, path, found):
        past = self.past.setdefault(path, [[]])
        past.append(found)
        return self.dice.choice(past[-6:]) if self.now() else found


class Losses(Faults):
    """An object that was written is gone."""

    rate = 0.01

    def before(self, _):
        if Bucket.store and self.now():
            del Bucket.store[self.dice.choice(sorted(Bucket.store))]


class Repeats(Faults):
    """An object is there again under the name of another one, or under a new name."""

    def written(self, store, path):
        self.happened += 1
        folder, _, name = path.rpartition("/")
        there = sorted(each for each in store if each.startswith(folder))
        data = store[path].getvalue()
        put(f"{name[:2]}repeated-{len(store)}.reply.fgx", data, folder)
        put(f"{name[:2]}repeated-{len(store)}.request.fgx", store[there[0]].getvalue(), folder)


class CutReads(Faults):
    """A part of an object."""

    rate = 0.1

    def reading(self, data):
        return data[: len(data) // 2] if self.now() else None


class CutWrites(Faults):
    """A writer that was ended, or a connection that broke: half of the object stays."""

    rate = 0.4

    def writing(self, _, path, value):
        if self.now():
            put(path.rpartition("/")[2], value[: len(value) // 2], path.rpartition("/")[0])
            raise ConnectionResetError(SECRET)


class Strangers(Faults):
    """Somebody who may write takes every name just before its owner does."""

    def writing(self, store, path, _):
        if not (path in store or re.search(r"[0-9a-f]{16}", path)):
            self.happened += 1
            there = sorted(each for each in store if each.endswith(".fgx"))
            foreign = store[self.dice.choice(there)].getvalue() if there else b""
            folder, _, name = path.rpartition("/")
            put(name, self.dice.choice((b"", b"{}", b"\xff" * 99, foreign)), folder)
            raise FileExistsError


_KINDS = (Errors, OldListings, Losses, Repeats, CutReads, CutWrites, Strangers)
FAULTS = {each.__name__: each for each in _KINDS}


class RemoteWorld(World):
    """Sites whose files pass through an address."""

    run = "bucket://run"

    def answer(self, run, name, stage, data=None):
        super().answer(run, name, stage, data)

    def persist(self, plan, faults):
        """Everybody tries until it works, as agents do; the result, and all that was said."""
        said = []

        def insist(step):
            for _ in range(TRIES):
                try:
                    return step()
                except fg.FedgaugeError as error:
                    said.append(str(error))
                    if "waits for" in str(error):
                        return None
            raise AssertionError(f"it did not work {TRIES} times: {said[-3:]}")

        session = self.start(self.run, plan).hex()
        Bucket.faults = faults
        outcome = None
        for _ in range(TRIES):
            for name in self.names:
                self.take_turn(name, said)
            outcome = insist(lambda: self.coordinator(self.run).advance(evaluation=session))
            if isinstance(outcome, fg.Evaluation):
                return outcome, said
        raise AssertionError(f"no result: {said[-3:]}")

    def take_turn(self, name, said):
        """A site answers what it sees that it is asked, once it can."""
        try:
            progress = self.exchange(self.run, name).progress()
            if name in progress.missing:
                self.answer(self.run, name, progress.stage, CLIENTS[name])
        except fg.FedgaugeError as error:
            said.append(str(error))

    def assert_right(self, result, names=None):
        np.testing.assert_array_equal(counts_of(result), self.truth(names))
        assert result.privacy.claim == "enforced"


def restarted(world):
    """Whether a result is in the bucket, as somebody who comes later finds it."""
    exchange = Exchange(open_folder(world.run), world.site(NAMES[0]))
    return exchange.is_finished(exchange.invitation())
