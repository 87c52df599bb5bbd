"""Engine memory for tests: POSIX shared memory, named to kvd by its host wrapper."""

import itertools
import mmap
import os
import random
import struct

_serial = itertools.count()


def host_wrapper(name, offset, size):
    """docs/host-device.md: magic, u64 offset, u64 size, u32 length of the name, the name."""
    encoded = name.encode()
    return b"KVDHOST1" + struct.pack("<QQI", offset, size, len(encoded)) + encoded


FILL_BYTES = 64 << 20


class HostMemory:
    """One shared-memory object. Closing it unlinks the name."""

    def __init__(self, size, seed=None):
        self.name = f"kvd-wire-{os.getpid()}-{next(_serial)}"
        self.size = size
        self._path = f"/dev/shm/{self.name}"
        descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.ftruncate(descriptor, size)
            self.map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        if seed is not None:
            self.fill(seed)

    def fill(self, seed):
        content = random.Random(repr(seed))
        for start in range(0, self.size, FILL_BYTES):  # more at once is more than it can make
            end = min(start + FILL_BYTES, self.size)
            self.map[start:end] = content.randbytes(end - start)

    def wrapper(self, offset=0, size=None):
        return host_wrapper(self.name, offset, self.size - offset if size is None else size)

    def close(self):
        if self._path:
            self.map.close()
            os.unlink(self._path)
            self._path = None


class HostTensor:
    """One layer's KV cache: `span` bytes at `offset` of a HostMemory."""

    def __init__(self, memory, offset, span):
        self.memory, self.offset, self.span = memory, offset, span

    def wrapper(self):
        return self.memory.wrapper(self.offset, self.span)

    def read(self, start, length):
        begin = self.offset + start
        return self.memory.map[begin:begin + length]

    def write(self, start, content):
        begin = self.offset + start
        self.memory.map[begin:begin + len(content)] = content

    def image(self):
        return bytearray(self.read(0, self.span))
