"""Every load that fails says so twice: an exception, and -1 in the load's shared-memory flag."""

import os
import struct

import pytest

from engine import finish, hashes
from pegaflow.pegaflow import PegaFlowError, PegaflowInternal, PyLoadState


@pytest.fixture
def stored(simple):
    simple.save([0, 1, 2], hashes(3))
    return simple


def refuse(worker, error, loads, groups=None, **changes):
    """The call raises exactly `error`, the flag says -1, and no memory changed."""
    images, state = worker.images(), PyLoadState()
    place = worker.place
    arguments = dict(
        instance_id=worker.instance, tp_rank=place.tp_rank, device_id=place.device,
        load_state_shm=state.shm_name(), layer_groups=groups or [list(worker.layers)],
        loads=loads)
    arguments.update(changes)
    with pytest.raises(error) as failure:
        worker.client.load(**arguments)
    assert type(failure.value) is error, failure.value
    assert str(failure.value)
    assert state.get_state() == -1
    worker.expect_blocks(images, {})
    return str(failure.value)


def lease(worker):
    return worker.query(hashes(3)).lease


def test_an_unknown_instance(stored):
    message = refuse(stored, PegaFlowError, [(lease(stored), [[3, 4, 5]])], instance_id="nobody")
    assert "nobody" in message


def test_an_unknown_device(stored):
    message = refuse(stored, PegaFlowError, [(lease(stored), [[3, 4, 5]])], device_id=7)
    assert "7" in message and "engine" in message


def test_no_groups(stored):
    state = PyLoadState()
    with pytest.raises(ValueError):
        stored.client.load("engine", 0, 0, state.shm_name(), [], [(lease(stored), [])])
    assert state.get_state() == -1


def test_a_layer_in_two_groups(stored):
    refuse(stored, ValueError, [(lease(stored), [[3, 4, 5], [None] * 3])],
           [["layer.0", "layer.1"], ["layer.0"]])


def test_a_layer_named_twice_in_a_group(stored):
    refuse(stored, ValueError, [(lease(stored), [[3, 4, 5]])], [["layer.0", "layer.0"]])


def test_an_unknown_layer(stored):
    message = refuse(stored, ValueError, [(lease(stored), [[3, 4, 5]])], [["layer.0", "layer.9"]])
    assert "layer.9" in message


def test_more_target_lists_than_groups(stored):
    refuse(stored, ValueError, [(lease(stored), [[3, 4, 5], [3, 4, 5]])])


def test_fewer_target_lists_than_groups(stored):
    refuse(stored, ValueError, [(lease(stored), [[3, 4, 5]])], [["layer.0"], ["layer.1"]])


@pytest.mark.parametrize("targets", [[], [3], [3, 4], [3, 4, 5, 6]])
def test_a_target_list_of_another_length_than_the_lease(stored, targets):
    refuse(stored, ValueError, [(lease(stored), [targets])])


def test_a_used_up_lease(stored):
    used = lease(stored)
    stored.load(used, [3, 4, 5])
    refuse(stored, PegaflowInternal, [(used, [[3, 4, 5]])])


@pytest.mark.parametrize("target", [8, 1 << 20, (1 << 32) - 1])
def test_a_target_outside_the_layer(stored, target):
    """The contract lets this fail at once or at copy time; the flag says -1 either way."""
    images, state = stored.images(), PyLoadState()
    try:
        stored.start_load([(lease(stored), [[3, target, None]])], state=state)
    except ValueError as refusal:
        assert str(target) in str(refusal)
    assert finish(state) == -1
    assert stored.block("layer.0", 7) == stored.blocks_of(images, "layer.0", 7)


# The flag itself.


def flag_file(content, name):
    path = f"/dev/shm/{name}"
    with open(path, "wb") as flag:
        flag.write(content)
    return path


GOOD = struct.pack("<QIIqq", 8, 0x50464C44, 1, 0, 0)


@pytest.mark.parametrize("content", [
    b"", GOOD[:16], GOOD[:31],
    struct.pack("<QIIqq", 8, 0x50464C45, 1, 0, 0),
    struct.pack("<QIIqq", 8, 0x50464C44, 2, 0, 0),
    struct.pack("<QIIqq", 0, 0x50464C44, 1, 0, 0),
    struct.pack("<QIIqq", 9, 0x50464C44, 1, 0, 0),
    struct.pack("<QIIqq", 1 << 63, 0x50464C44, 1, 0, 0),
    struct.pack("<QIIqq", (1 << 64) - 8, 0x50464C44, 1, 0, 0),
], ids=["empty", "half", "31_bytes", "magic", "version", "offset_0", "offset_9", "far", "wraps"])
def test_a_flag_of_another_form_is_refused_and_left_alone(stored, content):
    name = f"kvd-wire-flag-{os.getpid()}"
    path = flag_file(content, name)
    try:
        with pytest.raises(PegaflowInternal):
            stored.client.load("engine", 0, 0, name, [list(stored.layers)],
                               [(lease(stored), [[3, 4, 5]])])
        with open(path, "rb") as flag:
            assert flag.read() == content
    finally:
        os.unlink(path)


@pytest.mark.parametrize("name", [
    "", "kvd-wire-no-such-object", "../../etc/passwd", "a/b", "/", "x" * 5000, "nul\0byte"])
def test_a_flag_that_cannot_be_opened_is_refused(server, stored, name):
    with pytest.raises(PegaFlowError) as failure:
        stored.client.load("engine", 0, 0, name, [list(stored.layers)],
                           [(lease(stored), [[3, 4, 5]])])
    assert type(failure.value) is PegaflowInternal
    assert server.alive()


def test_a_flag_unlinked_before_the_end_does_no_harm(server, stored):
    keys = hashes(3)
    for _ in range(50):
        state = stored.start_load([(stored.query(keys).lease, [[3, 4, 5]])])
        del state
    stored.load(stored.query(keys).lease, [5, 6, 7])
    assert server.alive()
