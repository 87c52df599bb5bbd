"""Rounds of kvd bench net and of Mooncake's transfer engine, in turns; see the script beside it."""

import ctypes
import json
import mmap
import multiprocessing
import random
import statistics
import subprocess
import sys
import time

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20)
BATCH = 1024  # pieces of one call


def memory(size, value):
    region = mmap.mmap(-1, size)
    region.madvise(14)  # MADV_HUGEPAGE, as a pool has
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    ctypes.memset(address, value, size)
    return region, address


def engine():
    from mooncake.engine import TransferEngine
    made = TransferEngine()
    if made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise SystemExit("mooncake_compare: the transfer engine does not start")
    return made


def hold(size, pipe):
    region, address = memory(size, 7)
    made = engine()
    if made.register_memory(address, size) != 0:
        raise SystemExit("mooncake_compare: the holder's memory is refused")
    pipe.send((f"127.0.0.1:{made.get_rpc_port()}", address))
    pipe.recv()
    del region


def mooncake_rate(made, target, here, there, size, block):
    offsets = list(range(0, size - block + 1, block))
    sources = offsets[:]
    random.Random(block).shuffle(sources)
    ctypes.memset(here, 0, size)
    begin = time.monotonic()
    for at in range(0, len(offsets), BATCH):
        part = slice(at, at + BATCH)
        done = made.batch_transfer_sync_read(
            target, [here + o for o in offsets[part]], [there + o for o in sources[part]],
            [block] * len(offsets[part]))
        if done != 0:
            raise SystemExit(f"mooncake_compare: a read of {block} byte blocks failed: {done}")
    took = time.monotonic() - begin
    if ctypes.string_at(here + size - 64, 64) != b"\7" * 64:
        raise SystemExit("mooncake_compare: wrong bytes")
    return len(offsets) * block / took / 1e9


def kvd_rate(kvd, size, block):
    text = subprocess.run(
        [kvd, "bench", "net", "--json", "--quiet", "--no-iperf", "--rounds", "1", "--bytes",
         str(size), "--block-size", f"{block >> 10}kb"],
        check=True, capture_output=True, text=True).stdout
    return json.loads(text)["rows"][0]["tcp_gb_per_s"]


def main():
    kvd, rounds, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ours, theirs = multiprocessing.Pipe()
    holder = multiprocessing.get_context("spawn").Process(target=hold, args=(size, theirs))
    holder.start()
    target, there = ours.recv()
    region, here = memory(size, 0)
    made = engine()
    made.register_memory(here, size)
    rates = {block: ([], []) for block in SIZES}
    for number in range(rounds + 1):
        for block in SIZES:
            pair = kvd_rate(kvd, size, block), mooncake_rate(made, target, here, there, size, block)
            if number > 0:
                for into, rate in zip(rates[block], pair):
                    into.append(rate)
    print("block     kvd GB/s  Mooncake  ratio")
    behind = False
    for block, (kvds, mooncakes) in rates.items():
        ratio = statistics.median(a / b for a, b in zip(kvds, mooncakes))
        behind = behind or ratio < 1
        print(f"{block >> 10:5} KiB {statistics.median(kvds):9.2f} "
              f"{statistics.median(mooncakes):9.2f} {ratio:6.2f}")
    ours.send("end")
    holder.join(10)
    holder.kill()
    del region
    sys.stdout.flush()
    sys.exit(1 if behind else 0)


if __name__ == "__main__":
    main()
