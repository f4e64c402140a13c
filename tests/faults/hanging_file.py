"""A file whose reads hang while that is wanted: a FUSE file system of one file, in a mount namespace of its own.

Usage: unshare --user --map-root-user --mount hanging_file.py FILE TEXT. Mounts over FILE, prints a line when that is
done, and serves until its stdin ends. A FILE that is a directory becomes an empty one, whose listings are the reads.
`hang` and `flow` on stdin say what becomes of reads, `freeze` and `flow` of reads and of looks at the file (stat). What
hangs cannot be killed, as a read of a wedged device cannot: FUSE waits for an answer to what its server has taken.

The protocol is the kernel's (linux/fuse.h, version 7.31); whoever is to see the file enters the namespaces by nsenter.
"""

import ctypes
import os
import select
import struct
import sys
from pathlib import Path

HEADER = struct.Struct("<IIQQIIIHH")
GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, FORGET, INTERRUPT = 3, 14, 15, 18, 25, 26, 2, 36
OPENDIR, READDIR, RELEASEDIR = 27, 28, 29
ORDERS = {b"hang": {READ, READDIR}, b"freeze": {READ, READDIR, GETATTR}}
FOPEN_DIRECT_IO = 1
ENOSYS = 38
NOSUID_NODEV = 6


class OneFile:
    def __init__(self, path, text):
        self.descriptor = os.open("/dev/fuse", os.O_RDWR)
        self.text = text
        self.mode = 0o40755 if Path(path).is_dir() else 0o100644
        self.hangs = set()
        self.kept = []
        options = f"fd={self.descriptor},rootmode={self.mode & 0o170000:o},user_id=0,group_id=0,allow_other".encode()
        if ctypes.CDLL(None, use_errno=True).mount(b"hanging", os.fsencode(path), b"fuse", NOSUID_NODEV, options):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def answer_one(self):
        """Take one request and answer it, or keep it for later."""
        message = os.read(self.descriptor, 1 << 17)
        _, code, unique, *_ = HEADER.unpack_from(message)
        if code in self.hangs:
            self.kept.append((code, unique, message))
        elif code not in (FORGET, INTERRUPT):
            self.reply(unique, *self.answer(code, message))

    def answer(self, code, message):
        """Error number and body."""
        if code == INIT:
            return 0, struct.pack("<IIII", 7, 31, 4096, 0).ljust(64, b"\0")
        if code == GETATTR:
            attributes = struct.pack("<6Q10I", 1, 4096, 8, 0, 0, 0, 0, 0, 0, self.mode, 1, 0, 0, 0, 4096, 0)
            return 0, struct.pack("<QII", 0, 0, 0) + attributes
        if code in (OPEN, OPENDIR):
            return 0, struct.pack("<QII", 1, FOPEN_DIRECT_IO if code == OPEN else 0, 0)
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", message, HEADER.size)
            return 0, self.text[offset : offset + size]
        return (0, b"") if code in (RELEASE, FLUSH, READDIR, RELEASEDIR) else (-ENOSYS, b"")

    def reply(self, unique, error, body):
        try:
            os.write(self.descriptor, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except FileNotFoundError:  # it was interrupted before we took it
            return

    def flow(self):
        """Answer what was kept."""
        self.hangs = set()
        for code, unique, message in self.kept:
            self.reply(unique, *self.answer(code, message))
        self.kept.clear()


def main():
    file = OneFile(sys.argv[1], sys.argv[2].encode() + b"\n")
    print("mounted", flush=True)
    while True:
        ready, _, _ = select.select([file.descriptor, sys.stdin.fileno()], [], [])
        if file.descriptor in ready:
            file.answer_one()
            continue
        order = os.read(sys.stdin.fileno(), 64).split()
        if not order:
            return
        if order[-1] in ORDERS:
            file.hangs = ORDERS[order[-1]]
        else:
            file.flow()
        print("done", flush=True)


if __name__ == "__main__":
    main()
