"""Refuse files that others than their owner can read, change or replace, as OpenSSH does.

What is used belongs to the user who runs this, or to root, and so does every folder and link on
the way to it. Nobody else may write there, but for two cases in folders further up: in sticky ones
such as ``/tmp`` only the owner of an entry replaces it, and a group may write that is the owner's
own (Debian's rule for umask 002).
"""

import os
import shlex
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from fedgauge.errors import FedgaugeError

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MOST_LINKS: Final = 40  # as Linux follows
_ACCESS_LIST: Final = "system.posix_acl_access"


def require_own(
    path: Path,
    error: type[FedgaugeError],
    *,
    opened: os.stat_result | None = None,
    private: bool = False,
    then: str = "check what it says",
) -> None:
    """Refuse, by an error of a class, what others can change; where it is private, also read.

    Parameters
    ----------
    path
        A file or a folder.
    error
        The class of the error.
    opened
        What an open file says of itself: what is checked is what is read.
    private
        Whether only the owner may read it.
    then
        What to do once others are kept out.
    """
    for told in faults(path, opened=opened, private=private, then=then):
        raise error(told)


def faults(
    path: Path,
    *,
    opened: os.stat_result | None = None,
    private: bool = False,
    then: str = "check what it says",
) -> Iterator[str]:
    """Each thing that is wrong, with the command that mends it; nothing where all is well.

    Of a file that is not there, what is wrong with the way to it.
    """
    if os.name != "posix":
        return
    *above, place = _way(path.absolute())
    itself = opened or _seen(place)
    if itself is not None:
        yield from _of_another(place, itself)
    if itself is not None and itself.st_mode & (_OTHERS if private else _OTHERS_WRITE):
        is_folder = stat.S_ISDIR(itself.st_mode)
        if is_folder and not private:
            yield _shared(place)
        else:
            mode = ("700" if is_folder else "600") if private else "go-w"
            can = "read or change" if private else "change"
            yield (
                f"others than its owner can {can} {place}. Run `chmod {mode} {_quoted(place)}`, "
                f"and {then}."
            )
    for passed in above:
        yield from _of_folder(passed)


def _of_folder(passed: Path) -> Iterator[str]:
    """What is wrong with a folder, or a link, on the way."""
    found = _seen(passed)
    if found is None:
        return
    yield from _of_another(passed, found)
    is_shared = bool(found.st_mode & _OTHERS_WRITE) and not stat.S_ISLNK(found.st_mode)
    if is_shared and not (found.st_mode & stat.S_ISVTX or _for_its_owner_alone(passed, found)):
        yield _shared(passed)


def _shared(folder: Path) -> str:
    return (
        f"others can replace what is in {folder}. Run `chmod go-w {_quoted(folder)}`, and check "
        "what is in it."
    )


def _of_another(place: Path, found: os.stat_result) -> Iterator[str]:
    me, owner = os.geteuid(), found.st_uid
    if owner in (me, 0):
        return
    command = "chown -h" if stat.S_ISLNK(found.st_mode) else "chown"
    yield (
        f"{place} belongs to {_name(owner)}, and this is run by {_name(me)}. Run this as "
        f"{_name(owner)}, or check what is there and run `{command} {_name(me)} {_quoted(place)}`."
    )


def _way(path: Path) -> Iterator[Path]:
    """Every folder and link that a path leads through, and last what it names."""
    here, ahead, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    while ahead:
        name = ahead.pop()
        yield here
        if name == os.pardir:
            here = here.parent
            continue
        place = here / name
        if not place.is_symlink():
            here = place
            continue
        yield place
        links += 1
        if links > _MOST_LINKS:
            raise OSError(f"too many links on the way to {path}")
        target = place.readlink()
        ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        here = Path(target.anchor) if target.is_absolute() else here
    yield here


def _for_its_owner_alone(folder: Path, found: os.stat_result) -> bool:
    """Whether a group may write that is its owner's own, in which nobody else is.

    Not of root's, in which containers run whoever has no account.
    """
    import grp
    import pwd

    if found.st_mode & stat.S_IWOTH or not found.st_uid or _has_access_list(folder):
        return False
    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    others = chain(
        group.gr_mem, (each.pw_name for each in pwd.getpwall() if each.pw_gid == found.st_gid)
    )
    # By its name: where accounts come from a directory, not all members can be listed.
    return group.gr_name == owner.pw_name and {*others} <= {owner.pw_name}


def _has_access_list(folder: Path) -> bool:
    """Whether a list says who else may write: the mode of the group is then the most of it."""
    try:
        return bool(os.getxattr(folder, _ACCESS_LIST))
    except (OSError, AttributeError):
        return False


def _seen(place: Path) -> os.stat_result | None:
    try:
        return place.lstat()
    except FileNotFoundError:
        return None


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _quoted(place: Path) -> str:
    """As a shell takes it."""
    return shlex.quote(str(place))
