"""Work done as another user of this machine, which takes root."""

import os
import pwd
from contextlib import contextmanager
from grp import struct_group

import pytest
from forks import fast_folder

ALICE, MALLORY = 47_001, 47_002
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as others")


def entry(name, uid, gid):
    return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))


class People:
    """Who has an account here, and which groups there are, whatever the machine says."""

    def __init__(self, patch):
        self.users = [entry("root", 0, 0), entry("alice", ALICE, ALICE)]
        self.users.append(entry("mallory", MALLORY, MALLORY))
        self.groups = {0: ("root", []), ALICE: ("alice", []), MALLORY: ("mallory", [])}
        patch.setattr("pwd.getpwall", lambda: self.users)
        patch.setattr("pwd.getpwuid", self._user)
        patch.setattr("grp.getgrgid", self._group)

    def _user(self, uid):
        for each in self.users:
            if each.pw_uid == uid:
                return each
        raise KeyError(uid)

    def _group(self, gid):
        name, members = self.groups[gid]
        return struct_group((name, "x", gid, members))


def as_user(uid, work, *, umask=0o022):
    """What work gives as text, done by a user with a group of its own; an error's words else."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(umask)
            told = str(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@contextmanager
def home_of(uid):
    """A folder of a user's, which others can look into."""
    with fast_folder() as folder:
        os.chown(folder, uid, uid)
        folder.chmod(0o755)
        yield folder
