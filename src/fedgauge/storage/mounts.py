"""Which filesystem a file is on, since a ledger is safe only on a local one."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Final

from fedgauge.errors import LedgerError

_MOUNTS: Final = Path("/proc/self/mountinfo")

# Filesystems shared between machines: locks and syncs on them may mean nothing.
_NETWORK: Final = re.compile(
    "9p|acfs|afs|beegfs|ceph|cifs|coda|davfs|gfs|gfs2|glusterfs|gpfs|kafs|lustre|mfs|ncpfs?|"
    "nfs[34]?|ocfs2|orangefs|panfs|prl_fs|pvfs2|smb.*|vboxsf|virtiofs|vmhgfs|wekafs"
)

# Any program can be behind a FUSE mount, so all are refused but those known to be local.
_FUSE: Final = re.compile(r"fuse(\..*)?")
_LOCAL_FUSE: Final = re.compile(
    r"fuse\.(bindfs|cryfs|encfs|fuse-overlayfs|gocryptfs|mergerfs|securefs)"
)


def filesystem_type(path: PurePosixPath, mountinfo: str) -> str | None:
    r"""The type of the filesystem that holds a path, by the kernel's list of mounts.

    Parameters
    ----------
    path
        An absolute path without links.
    mountinfo
        Text in the form of ``/proc/self/mountinfo``.

    Examples
    --------
    >>> mounts = "21 1 8:1 / / rw - ext4 /dev/sda rw\n22 21 0:9 / /data rw - nfs4 nas:/ rw"
    >>> filesystem_type(PurePosixPath("/data/ledger.sqlite"), mounts)
    'nfs4'
    >>> filesystem_type(PurePosixPath("/database/ledger.sqlite"), mounts)
    'ext4'
    """
    kind, depth = None, 0
    for line in mountinfo.split("\n"):
        # id, parent, device, root, mount point, options, optional fields, "-", type, ...
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 6:
            continue
        point = PurePosixPath(_unescape(fields[4]))
        # Of two mounts at one point the later lies on top.
        if len(point.parts) >= depth and path.is_relative_to(point):
            kind, depth = after.split(" ")[0], len(point.parts)
    return kind


def is_shared(kind: str) -> bool:
    """Whether a type of filesystem may be shared between machines.

    Examples
    --------
    >>> is_shared("nfs4"), is_shared("fuse.sshfs"), is_shared("ext4"), is_shared("fuseblk")
    (True, True, False, False)
    """
    if _FUSE.fullmatch(kind):
        return _LOCAL_FUSE.fullmatch(kind) is None
    return _NETWORK.fullmatch(kind) is not None


def require_local(path: Path) -> None:
    """Refuse a ledger on a filesystem shared between machines."""
    try:
        mountinfo = os.fsdecode(_MOUNTS.read_bytes())
    except OSError:
        return  # not Linux: nothing to go by
    kind = filesystem_type(PurePosixPath(os.path.realpath(path)), mountinfo)
    if kind is not None and is_shared(kind):
        raise LedgerError(
            f"ledger {path} is on a filesystem shared between machines ({kind}), where locks "
            "cannot be relied on. Keep it on a local disk: change `ledger` in the site file."
        )


def _unescape(text: str) -> str:
    # Spaces, tabs, newlines and backslashes are written as three octal digits.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
