"""One engine of a stress test: random prompts that share prefixes, every loaded byte checked.

    stress_client.py <endpoint> <instance> <namespace> <seed> <seconds>

A block's bytes follow from its hash, so that engines can check what others saved. Prints one line
of counts and exits with 0, or fails with the first difference.
"""

import hashlib
import random
import sys
import time

import engine
from pegaflow.pegaflow import EngineRpcClient

LAYERS = [engine.kv_split("a", 64, 8192), engine.kv_split("b", 64, 8192),
          engine.blocks_first("c", 64, 32768)]
FAMILIES = 40


def prompt(source):
    """The block hashes of a random prompt: one of a few roots, with branches on the way."""
    parent = b"root %d" % source.randrange(FAMILIES)
    length, chain = source.randrange(1, 33), []
    for depth in range(length):
        branch = source.randrange(2) if depth in (4, 12) else 0
        parent = hashlib.sha256(parent + bytes([branch])).digest()
        chain.append(parent)
    return chain


def content(namespace, key, layer):
    return random.Random(repr((namespace, key, layer.name))).randbytes(
        layer.segment_bytes * layer.segments)


def save(worker, source):
    chain = prompt(source)
    ids = source.sample(range(32), len(chain))
    for name, layer in worker.layers.items():
        for block, key in zip(ids, chain):
            worker.put_block(name, block, content(worker.namespace, key, layer))
    worker.save(ids, chain)
    return len(chain)


def load(worker, source, request):
    """Returns how many blocks were hit; all that were hit are loaded and compared."""
    chain = prompt(source)
    found = worker.query(chain, f"r{request}")
    hits = found.num_hit_blocks
    if hits == 0:
        return 0
    if source.random() < 0.1:
        worker.client.release(found.lease)
        return 0
    targets = source.sample(range(32, 64), hits)
    worker.load(found.lease, targets)
    for name, layer in worker.layers.items():
        for target, key in zip(targets, chain):
            wanted = content(worker.namespace, key, layer)
            found_bytes = worker.block(name, target)
            assert found_bytes == wanted, f"{name}, block {target} of request {request}"
    return hits


def main():
    endpoint, instance, namespace, seed, seconds = sys.argv[1:6]
    client, source = EngineRpcClient(endpoint), random.Random(int(seed))
    client.start_session_watcher(instance, namespace, 1, 1)
    worker = engine.Worker(client, instance, namespace, LAYERS).register()
    saved = hits = rounds = 0
    try:
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            saved += save(worker, source)
            hits += load(worker, source, rounds)
            rounds += 1
    finally:
        worker.close()
    print(f"rounds={rounds} saved={saved} loaded={hits}", flush=True)


if __name__ == "__main__":
    main()
