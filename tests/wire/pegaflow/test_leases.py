"""Leases pin what a query found, and end in exactly the ways that the contract names."""

import time

import pytest

from engine import Place, connect, finish, hashes, kv_split
from pegaflow.pegaflow import PegaFlowError, PegaflowInternal, PyLoadState

UNKNOWN = "unknown or expired"


def precondition(call, match):
    """FAILED_PRECONDITION reaches Python as PegaFlowError itself, not as a subclass."""
    with pytest.raises(PegaFlowError, match=match) as failure:
        call()
    assert type(failure.value) is PegaFlowError


def replicas(server, make_worker, count):
    layers = [kv_split("a", 8, 4096)]
    workers = [make_worker(connect(server), "engine", "model", layers,
                           Place(device=rank, tp_rank=rank, tp_size=count, world=count))
               for rank in range(count)]
    for worker in workers:
        worker.register()
    return workers


def test_a_lease_serves_every_worker_once(server, make_worker):
    workers = replicas(server, make_worker, 3)
    keys = hashes(2)
    for worker in workers:
        worker.save([0, 1], keys)
    lease = workers[0].query(keys).lease
    for worker in workers:
        worker.load(lease, [6, 7])
    with pytest.raises(PegaflowInternal, match=UNKNOWN):
        workers[0].start_load([(lease, [[6, 7]])])
    precondition(lambda: workers[0].client.release(lease), UNKNOWN)


def test_release_drops_the_consumers_that_are_left(server, make_worker):
    workers = replicas(server, make_worker, 2)
    keys = hashes(1)
    for worker in workers:
        worker.save([0], keys)
    lease = workers[0].query(keys).lease
    workers[0].load(lease, [7])
    assert workers[0].client.release(lease) is None
    with pytest.raises(PegaflowInternal, match=UNKNOWN):
        workers[1].start_load([(lease, [[7]])])


def test_a_released_lease_is_gone(simple):
    keys = hashes(1)
    simple.save([0], keys)
    lease = simple.query(keys).lease
    assert simple.client.release(lease) is None
    precondition(lambda: simple.client.release(lease), UNKNOWN)
    state = PyLoadState()
    with pytest.raises(PegaflowInternal, match=UNKNOWN):
        simple.start_load([(lease, [[1]])], state=state)
    assert state.get_state() == -1


def test_a_lease_that_was_never_given_is_unknown(simple):
    precondition(lambda: simple.client.release(b"\x07" * 16), UNKNOWN)
    with pytest.raises(PegaflowInternal, match=UNKNOWN):
        simple.start_load([(b"\x07" * 16, [[1]])])


@pytest.mark.parametrize("length", [0, 1, 15, 17, 1000])
def test_a_lease_of_another_length_is_an_argument_error(simple, length):
    with pytest.raises(ValueError, match="lease"):
        simple.client.release(b"\x07" * length)
    state = PyLoadState()
    with pytest.raises(ValueError, match="lease"):
        simple.start_load([(b"\x07" * length, [[1]])], state=state)
    assert state.get_state() == 0, "the length is checked before the flag is attached"


def test_each_query_gets_its_own_lease(simple):
    keys = hashes(2)
    simple.save([0, 1], keys)
    leases = [simple.query(keys, f"r{i}").lease for i in range(50)]
    assert len(set(leases)) == 50
    for lease in leases:
        simple.client.release(lease)


def test_a_lease_belongs_to_its_instance(server, simple, make_worker):
    other = make_worker(connect(server), "other", "model", simple.layers.values()).register()
    keys = hashes(1)
    simple.save([0], keys)
    lease = simple.query(keys).lease
    with pytest.raises(PegaflowInternal):
        other.start_load([(lease, [[1]])])


def test_a_lease_ends_after_its_time(start_server, make_worker):
    server = start_server("--lease-ttl-secs", "1")
    worker = make_worker(connect(server), "engine", "model", [kv_split("a", 4, 4096)]).register()
    keys = hashes(2)
    worker.save([0, 1], keys)
    kept, loaded = worker.query(keys).lease, worker.query(keys).lease
    worker.load(loaded, [2, 3])
    # Waits for the clock of another process, so there is nothing to poll without using the lease.
    time.sleep(1.5)
    state = PyLoadState()
    with pytest.raises(PegaflowInternal, match=UNKNOWN):
        worker.start_load([(kept, [[2, 3]])], state=state)
    assert state.get_state() == -1
    precondition(lambda: worker.client.release(kept), UNKNOWN)
    assert worker.query(keys).num_hit_blocks == 2, "the blocks outlive their lease"


def test_the_leases_of_an_instance_end_with_it(server, simple):
    keys = hashes(1)
    simple.save([0], keys)
    lease = simple.query(keys).lease
    assert simple.client.unregister_context("engine") == (True, "")
    precondition(lambda: simple.client.release(lease), UNKNOWN)
    store = server.get_json("/status")["store"]
    assert (store["leases"], store["leased_blocks"], store["pinned_bytes"]) == (0, 0, 0)


def test_a_lease_outlives_the_eviction_of_everything_else(start_server, make_worker):
    """user-reports 16: between query and load the cache is filled several times over."""
    server = start_server(pool="8mb")
    layers = [kv_split("a", 64, 32 * 1024)]
    worker = make_worker(connect(server), "engine", "model", layers).register()
    keys = hashes(8, "kept")
    saved = {("a", 40 + i): worker.block("a", i) for i in range(8)}
    worker.save(list(range(8)), keys)
    found = worker.query(keys)
    assert found.num_hit_blocks == 8
    for round_number in range(20):
        worker.save(list(range(8, 40)), hashes(32, f"storm {round_number}"))
    assert server.metric("pegaflow_cache_block_evictions_total") > 0
    images = worker.images()
    worker.load(found.lease, list(range(40, 48)))
    worker.expect_blocks(images, saved)


def test_loads_with_old_and_new_leases_mix_in_one_call(simple):
    keys = hashes(2)
    simple.save([0, 1], keys)
    good = simple.query(keys).lease
    state = PyLoadState()
    with pytest.raises(PegaflowInternal, match=UNKNOWN):
        simple.start_load([(good, [[2, 3]]), (b"\x01" * 16, [[4]])], state=state)
    assert finish(state) == -1
