"""Clients that take their memory away, or change it, while kvd has it mapped."""

import os
import struct
import threading

import pytest

from engine import connect, finish, hashes, kv_split
from pegaflow.pegaflow import PegaFlowError, PyLoadState


@pytest.fixture
def victim(server, make_worker):
    """Four megabytes of memory, so that the end of it is many pages away from the start."""
    return make_worker(connect(server), "victim", "model",
                       [kv_split("a", 128, 16 * 1024)]).register()


@pytest.fixture
def witness(server, make_worker):
    """Another engine, which must not notice anything."""
    return make_worker(connect(server), "witness", "witness", [kv_split("a", 8, 4096)]).register()


def truncate(worker, size):
    os.truncate(f"/dev/shm/{worker.memories[0].name}", size)


def works(worker):
    worker.save([0, 1], hashes(2))
    worker.load(worker.query(hashes(2)).lease, [6, 7])
    assert worker.block("a", 7) == worker.block("a", 1)


@pytest.mark.parametrize("size", [0, 4096, 1 << 20])
def test_a_save_from_memory_that_was_cut_off_fails_alone(server, victim, witness, size):
    truncate(victim, size)
    with pytest.raises(PegaFlowError):
        victim.save(list(range(100, 128)), hashes(28))
    assert victim.query(hashes(28)).num_hit_blocks == 0
    works(witness)
    assert server.alive()


@pytest.mark.parametrize("size", [0, 4096, 1 << 20])
def test_a_load_into_memory_that_was_cut_off_fails_alone(server, victim, witness, size):
    keys = hashes(28)
    victim.save(list(range(28)), keys)
    lease = victim.query(keys).lease
    truncate(victim, size)
    state = PyLoadState()
    try:
        victim.start_load([(lease, [list(range(100, 128))])], state=state)
    except PegaFlowError:
        pass
    assert finish(state) == -1
    works(witness)
    assert server.alive()
    truncate(victim, victim.memories[0].size)
    found = victim.query(keys)
    assert found.num_hit_blocks == 28, "the stored blocks are none of the client's memory"
    victim.load(found.lease, list(range(28)))


def test_memory_that_shrinks_and_grows_all_the_time_harms_nobody(server, victim, witness):
    stop = threading.Event()

    def flap():
        while not stop.is_set():
            truncate(victim, 0)
            truncate(victim, victim.memories[0].size)

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        for number in range(150):
            keys = hashes(16, f"round {number}")
            try:
                victim.save(list(range(16)), keys)
                found = victim.query(keys)
                if found.num_hit_blocks:
                    state = victim.start_load(
                        [(found.lease, [list(range(64, 64 + found.num_hit_blocks))])])
                    assert finish(state) in (1, -1)
            except PegaFlowError:
                pass
            if number % 30 == 0:
                works(witness)
    finally:
        stop.set()
        thread.join()
    assert server.alive()


def test_memory_may_be_unlinked_after_the_registration(victim):
    name = victim.memories[0].name
    os.rename(f"/dev/shm/{name}", f"/dev/shm/{name}-hidden")
    try:
        victim.save([0, 1], hashes(2))
        victim.load(victim.query(hashes(2)).lease, [6, 7])
        assert victim.block("a", 7) == victim.block("a", 1)
    finally:
        os.rename(f"/dev/shm/{name}-hidden", f"/dev/shm/{name}")


def test_a_flag_that_is_cut_off_during_the_load_harms_nobody(server, victim, witness):
    keys = hashes(64)
    victim.save(list(range(64)), keys)
    for _ in range(30):
        state = victim.start_load([(victim.query(keys).lease, [list(range(64, 128))])])
        os.truncate(f"/dev/shm/{state.shm_name()}", 0)
        os.truncate(f"/dev/shm/{state.shm_name()}", 32)
    works(witness)
    assert server.alive()


def test_two_instances_may_register_the_same_memory(server, victim, make_worker):
    """Wrong, but not harmful: each sees what is there."""
    twin = make_worker(connect(server), "twin", "model", victim.layers.values())
    twin.register(wrapper_bytes_list=[victim.tensors["a"].wrapper()])
    victim.save([0], hashes(1))
    wanted = victim.block("a", 0)
    state = twin.start_load([(twin.query(hashes(1)).lease, [[9]])])
    assert finish(state) == 1
    assert victim.block("a", 9) == wanted
    assert twin.client.unregister_context("twin") == (True, "")
    victim.load(victim.query(hashes(1)).lease, [11])
    assert victim.block("a", 11) == wanted


def test_a_flag_that_is_no_regular_memory_is_refused(victim):
    """/dev/shm holds a directory or a pipe of that name."""
    keys = hashes(1)
    victim.save([0], keys)
    for make in (os.mkdir, os.mkfifo):
        name = f"kvd-wire-odd-{os.getpid()}"
        make(f"/dev/shm/{name}")
        try:
            with pytest.raises(PegaFlowError):
                victim.client.load("victim", 0, 0, name, [["a"]],
                                   [(victim.query(keys).lease, [[1]])])
        finally:
            (os.rmdir if make is os.mkdir else os.unlink)(f"/dev/shm/{name}")


def test_one_flag_for_two_loads_ends_in_a_final_state(victim):
    keys = hashes(2)
    victim.save([0, 1], keys)
    state = PyLoadState()
    victim.start_load([(victim.query(keys).lease, [[5, 6]])], state=state)
    victim.start_load([(victim.query(keys).lease, [[7, 8]])], state=state)
    assert finish(state) == 1
    with open(f"/dev/shm/{state.shm_name()}", "rb") as flag:
        assert struct.unpack("<QIIq", flag.read(24))[:3] == (8, 0x50464C44, 1)
