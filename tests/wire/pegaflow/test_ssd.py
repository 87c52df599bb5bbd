"""The SSD tier, through the client: what left RAM, or the process, comes back right or not."""

import json
import os
import random
import re
import signal
import subprocess

import pytest

from engine import Place, connect, hashes, blocks_first
from kvd_server import BINARY, KvdServer, eventually

BLOCK = 64 * 1024
BLOCKS = 256


def content(key):
    """What the block of that key holds, whoever saves it."""
    return random.Random(key).randbytes(BLOCK)


class Tier:
    """Servers one after the other on one cache file, and one engine that plays along."""

    def __init__(self, start_server, make_worker, folder):
        self.start_server, self.make_worker = start_server, make_worker
        self.path = os.path.join(folder, "cache")
        self.server = self.worker = None
        self.requests = 0

    def flags(self, *more):
        return ["--ssd-cache-path", self.path, "--ssd-cache-capacity", "256mb", "--ssd-min-free",
                "0b", *more]

    def start(self, *more, pool="16mb", place=Place()):
        self.server = self.start_server(*self.flags(*more), pool=pool)
        layers = [blocks_first("l", BLOCKS, BLOCK)]
        self.worker = self.make_worker(connect(self.server), "engine", "model", layers,
                                       place).register()
        return self

    def save(self, keys):
        for at in range(0, len(keys), 64):
            some = keys[at:at + 64]
            for block, key in enumerate(some):
                self.worker.put_block("l", block, content(key))
            self.worker.save(list(range(len(some))), some)
        return self

    def written(self):
        """Waits until everything saved so far is on the file."""
        eventually(lambda: self.server.metric("pegaflow_ssd_write_queue_pending") == 0
                   and self.server.metric("pegaflow_ssd_write_inflight") == 0, 60, "the writes")
        assert self.server.metric("pegaflow_ssd_write_queue_full_total") == 0
        assert self.server.metric("kvd_ssd_write_skipped_total") == 0
        return self

    def stop(self):
        self.server.end_expected = True
        assert self.server.stop() == 0

    def kill(self):
        self.server.end_expected = True
        self.server.signal(signal.SIGKILL)
        self.server.wait_exit()

    def hits(self, keys):
        """Loads what is there of `keys`, checks every byte, and returns how many that were."""
        self.requests += 1
        found = self.worker.query(keys, f"request {self.requests}")
        count = found.num_hit_blocks
        if count:
            targets = list(range(100, 100 + count))
            self.worker.load(found.lease, targets)
            for target, key in zip(targets, keys):
                assert self.worker.block("l", target) == content(key), "wrong bytes"
        return count


@pytest.fixture
def tier(start_server, make_worker, tmp_path):
    return Tier(start_server, make_worker, str(tmp_path))


def test_blocks_that_left_ram_come_back(tier):
    tier.start(pool="8mb")
    groups = [hashes(64, f"group {number}") for number in range(8)]  # 4 MiB each
    for group in groups:
        tier.save(group).written()
    for group in groups:
        assert tier.hits(group) == 64
    assert tier.server.metric("pegaflow_cache_tier_block_requests_total", tier="ssd") > 0
    assert tier.server.metric("pegaflow_ssd_prefetch_failures_total") == 0
    assert tier.server.metric("kvd_ssd_up") == 1


@pytest.mark.parametrize("sync", ["process", "segment", "write"])
def test_blocks_outlive_the_process(tier, sync):
    """user-reports 50: every block that was written is served again, not only 99 of 100."""
    keys = hashes(200, "kept")
    tier.start("--ssd-sync", sync).save(keys).written()
    tier.stop()
    tier.start("--ssd-sync", sync)
    assert "clean=true" in tier.server.log
    for at in range(0, 200, 50):
        assert tier.hits(keys[at:at + 50]) == 50


def test_blocks_outlive_a_kill(tier):
    """user-reports 50."""
    keys = hashes(200, "kept")
    tier.start().save(keys).written()
    tier.kill()
    tier.start()
    assert "clean=false" in tier.server.log
    for at in range(0, 200, 50):
        assert tier.hits(keys[at:at + 50]) == 50


def test_blocks_of_two_workers_come_back_whole(start_server, make_worker, tmp_path):
    flags = ["--ssd-cache-path", str(tmp_path / "cache"), "--ssd-cache-capacity", "64mb",
             "--ssd-min-free", "0b"]
    keys = hashes(40, "both")

    def workers(server):
        made = []
        for rank in range(2):
            place = Place(device=rank, tp_rank=rank, tp_size=2, world=2)
            made.append(make_worker(connect(server), "engine", "model",
                                    [blocks_first("l", 100, BLOCK)], place, seed=str(rank)))
        for worker in made:
            worker.register()
        return made

    server = start_server(*flags, pool="16mb")
    for worker in workers(server):
        for block, key in enumerate(keys):
            worker.put_block("l", block, content(key + bytes([worker.place.device])))
        worker.save(list(range(40)), keys)
    eventually(lambda: server.metric("pegaflow_ssd_write_bytes_total") >= 40 * 2 * BLOCK, 60,
               "the writes")
    server.end_expected = True
    assert server.stop() == 0
    server = start_server(*flags, pool="16mb")
    second = workers(server)
    found = second[0].query(keys)
    assert found.num_hit_blocks == 40
    for worker in second:
        worker.load(found.lease, list(range(50, 90)))
        for target, key in zip(range(50, 90), keys):
            expected = content(key + bytes([worker.place.device]))
            assert worker.block("l", target) == expected


def test_another_namespace_finds_nothing(tier):
    keys = hashes(20, "mine")
    tier.start().save(keys).written()
    layers = [blocks_first("l", BLOCKS, BLOCK)]
    other = tier.make_worker(connect(tier.server), "other", "another model", layers).register()
    assert other.query(keys).num_hit_blocks == 0


def test_several_paths_and_shards_are_one_tier(start_server, make_worker, tmp_path):
    tier = Tier(start_server, make_worker, str(tmp_path))
    folders = [str(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        os.mkdir(folder)
    tier.flags = lambda *more: ["--ssd-cache-path", *folders, "--ssd-cache-shards", "2",
                                "--ssd-cache-capacity", "256mb", "--ssd-min-free", "0b"]
    keys = hashes(200, "spread")
    tier.start(pool="32mb").save(keys).written()
    for folder in folders:
        assert sorted(os.listdir(folder))[0].startswith("shard-0000")
    tier.stop()
    tier.start(pool="8mb")
    for at in range(0, 200, 50):
        assert tier.hits(keys[at:at + 50]) == 50


def refused(*flags, min_free="0b"):
    """Starts a server that must end by itself; its exit status and log."""
    server = KvdServer("--ssd-min-free", min_free, "--ssd-cache-capacity", "64mb", *flags)
    server.wait_for_line(re.escape("(end of log)"), 60)
    return server.wait_exit(), server.log


def test_a_second_server_names_the_holder_and_ends(tier):
    tier.start()
    status, log = refused("--ssd-cache-path", tier.path)
    assert status == 1
    assert tier.path in log and str(tier.server.pid) in log


def test_a_foreign_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes"
    path.write_bytes(b"not a cache" * 1000)
    before = path.read_bytes()
    status, log = refused("--ssd-cache-path", str(path))
    assert status == 1 and str(path) in log
    assert path.read_bytes()[:len(before)] == before


@pytest.mark.parametrize("kind", ["folder", "missing folder"])
def test_a_path_that_cannot_be_a_file_is_refused_by_name(tmp_path, kind):
    path = str(tmp_path) if kind == "folder" else str(tmp_path / "no" / "cache")
    status, log = refused("--ssd-cache-path", path)
    assert status == 1 and path in log


def test_a_disk_without_room_is_refused_with_the_figures(tmp_path):
    status, log = refused("--ssd-cache-path", str(tmp_path / "cache"), min_free="1000tb")
    assert status == 1 and "free" in log


def fsck(path, *flags):
    """`kvd fsck`: exit status and report."""
    done = subprocess.run([BINARY, "fsck", path, "--json", *flags], capture_output=True, text=True,
                          timeout=120)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def test_fsck_counts_what_is_there_and_refuses_a_file_in_use(tier):
    keys = hashes(100, "checked")
    tier.start().save(keys).written()
    status, answer = fsck(tier.path)
    assert status == 1 and str(tier.server.pid) in answer
    tier.kill()
    status, report = fsck(tier.path)
    assert status == 0 and report["records"] == 100 and not report["clean"]
    tier.start()
    tier.stop()
    status, report = fsck(tier.path)
    assert status == 0 and report["records"] == 100 and report["clean"]
    with open(tier.path, "r+b") as file:  # in the first block's bytes
        file.seek(file.read().index(content(keys[0])[:64]))
        file.write(b"\0" * 64)
    status, report = fsck(tier.path)
    assert status == 1 and report["records_corrupt"] == 1
    status, report = fsck(tier.path, "--repair")
    assert status == 0 and report["repaired"]
    status, report = fsck(tier.path)
    assert status == 0 and report["records"] == 99
    tier.start()
    assert tier.hits(keys[:1]) == 0
    assert sum(tier.hits(keys[at:at + 33]) for at in range(1, 100, 33)) == 99


def test_wipe_starts_empty(tier):
    keys = hashes(20, "gone")
    tier.start().save(keys).written()
    tier.stop()
    tier.start("--ssd-wipe")
    assert tier.hits(keys) == 0


def test_flipped_bits_become_misses(tier):
    """user-reports 48."""
    keys = hashes(100, "flipped")
    tier.start().save(keys).written()
    tier.stop()
    size = os.path.getsize(tier.path)
    pick = random.Random(5)
    with open(tier.path, "r+b") as file:
        for _ in range(2000):  # in all of the first 16 MiB behind the superblock
            at = pick.randrange(1 << 20, min(size, 16 << 20))
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << pick.randrange(8))]))
    tier.start()
    found = sum(tier.hits([key]) for key in keys)
    assert found < 100
    assert tier.save(keys[:10]).hits(keys[:10]) == 10


def test_a_file_truncated_under_the_server_gives_misses(tier):
    """user-reports 46."""
    keys = hashes(200, "cut")
    tier.start().save(keys).written()
    os.truncate(tier.path, 2 << 20)
    for at in range(0, 200, 20):
        tier.hits(keys[at:at + 20])
    tier.server.wait_for_line(r"ERROR.*" + re.escape(tier.path), 30)
    assert tier.server.get_json("/status")["ssd"]["files"][0]["trouble"]
    more = hashes(20, "after")
    assert tier.save(more).hits(more) == 20


def test_a_file_deleted_under_the_server_costs_nothing_until_the_restart(tier):
    """user-reports 46."""
    keys = hashes(100, "deleted")
    tier.start(pool="8mb").save(keys).written()
    os.unlink(tier.path)
    tier.server.wait_for_line(r"ERROR.*" + re.escape(tier.path), 30)
    assert sum(tier.hits(keys[at:at + 20]) for at in range(0, 100, 20)) == 100
    tier.stop()
    tier.start()
    assert tier.hits(keys[:20]) == 0


def test_a_file_system_without_direct_io_says_so(start_server, make_worker):
    """user-reports 52: tmpfs."""
    folder = f"/dev/shm/kvd-test-{os.getpid()}"
    os.mkdir(folder)
    try:
        tier = Tier(start_server, make_worker, folder)
        keys = hashes(64, "memory")
        tier.start(pool="8mb").save(keys).written()
        assert "buffered" in tier.server.log or "direct" in tier.server.log
        assert tier.hits(keys[:32]) == 32
        assert tier.server.get_json("/status")["ssd"]["files"][0]["backend"]
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


@pytest.mark.timeout(3600)
def test_no_committed_block_is_lost_and_no_wrong_byte_served_over_many_kills(tier):
    """RocksDB's crash test in small; KVD_WIRE_KILLS=500 for a long run."""
    kills = int(os.environ.get("KVD_WIRE_KILLS", "5"))
    seed = int(os.environ.get("KVD_WIRE_SEED", "1"))
    pick = random.Random(seed)
    kept, number = [], 0  # (round, keys) of what was committed
    for round_number in range(kills):
        tier.start()
        for _, keys in pick.sample(kept, min(4, len(kept))):
            assert tier.hits(keys) == len(keys), f"seed {seed} round {round_number}: lost blocks"
        pending = []
        for _ in range(pick.randrange(1, 5)):
            keys = hashes(pick.randrange(1, 30), f"crash {seed} {number}")
            number += 1
            tier.save(keys)
            pending.append(keys)
            if pick.random() < 0.5:
                tier.written()
                kept += [(round_number, keys) for keys in pending]
                pending = []
        if pick.random() < 0.2:
            tier.stop()
        else:
            tier.kill()
        tier.worker.close()
        # A kill leaves its open segment as it is, so that a round takes up to three of the file's
        # 60 segments: what is older than this may have been reclaimed.
        kept = [keys for keys in kept if keys[0] > round_number - 15]
