"""What a client may put into wrapper_bytes: nothing in it is ever executed."""

import os
import pickle
import random

import pytest

import pickles
from engine import hashes, kv_split
from host_memory import host_wrapper
from pegaflow.pegaflow import PegaFlowError, PegaflowInternal

REFUSALS = (ValueError, PegaflowInternal)


@pytest.fixture
def worker(client, make_worker):
    return make_worker(client, "engine", "model", [kv_split("a", 8, 4096)])


def refused(server, worker, wrapper):
    """The text of the refusal; the server lives and keeps no instance."""
    with pytest.raises(REFUSALS) as failure:
        worker.register(wrapper_bytes_list=[wrapper])
    assert server.alive()
    assert server.instances() == []
    return str(failure.value)


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("generation", ["2.4", "2.6", "2.11", "expandable"])
def test_a_cuda_tensor_is_understood_and_refused_for_want_of_a_gpu(
        server, worker, protocol, generation):
    """This machine has no GPU: the error must be about CUDA, not about the pickle."""
    if os.path.exists("/dev/nvidiactl"):
        pytest.fail("this test belongs on a machine without a GPU")
    wrapper = pickles.wrapper(protocol=protocol, torch_generation=generation)
    with pytest.raises((*REFUSALS, PegaFlowError)) as failure:
        worker.register(wrapper_bytes_list=[wrapper])
    assert "cuda" in str(failure.value).lower(), failure.value
    assert server.alive() and server.instances() == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_pickle_protocol_that_no_client_uses_does_no_harm(server, worker, protocol):
    refused(server, worker, pickles.wrapper(protocol=protocol))


@pytest.mark.parametrize("changes", [
    dict(dtype="float8_e4m3fn"), dict(dtype="uint8"), dict(shape=(1024, 64, 576)),
    dict(shape=(7,)), dict(storage_bytes=1 << 40), dict(storage_offset=4096)],
    ids=lambda changes: "+".join(f"{k}={v}" for k, v in changes.items()))
def test_every_shape_and_type_of_cuda_tensor_is_understood(server, worker, changes):
    with pytest.raises((*REFUSALS, PegaFlowError)) as failure:
        worker.register(wrapper_bytes_list=[pickles.wrapper(**changes)])
    assert "cuda" in str(failure.value).lower(), failure.value


@pytest.mark.parametrize("module, name", [
    ("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "exec"),
    ("subprocess", "Popen"), ("__builtin__", "eval"), ("torch", "load")])
def test_a_pickle_that_would_run_code_is_refused_by_name(server, worker, tmp_path, module, name):
    witness = tmp_path / "executed"
    text = refused(server, worker, pickles.global_call(module, name, f"touch {witness}"))
    assert name in text or module in text, text
    assert not witness.exists()


class Attack:
    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return os.system, (f"touch {self.witness}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_code_hidden_inside_a_wrapper_is_refused(server, worker, tmp_path, protocol):
    witness = tmp_path / "executed"
    if protocol >= 2:
        refused(server, worker, pickles.wrapper(protocol, handle=Attack(witness)))
        refused(server, worker, pickles.wrapper(protocol, device_uuid=Attack(witness)))
    refused(server, worker, pickle.dumps(Attack(witness), protocol))
    assert not witness.exists()


def test_every_truncation_of_a_wrapper_is_refused(server, worker):
    wrapper = pickles.wrapper()
    for length in range(0, len(wrapper), 7):
        refused(server, worker, wrapper[:length])


def test_wrappers_with_flipped_bytes_do_no_harm(server, worker):
    """Either refused as a pickle or understood and refused for want of CUDA."""
    source, wrapper = random.Random(20), pickles.wrapper()
    for _ in range(400):
        broken = bytearray(wrapper)
        for _ in range(source.randint(1, 4)):
            broken[source.randrange(len(broken))] = source.randrange(256)
        with pytest.raises((*REFUSALS, PegaFlowError)):
            worker.register(wrapper_bytes_list=[bytes(broken)])
    assert server.alive() and server.instances() == []


@pytest.mark.parametrize("wrapper", [
    b"\x80\x04\x95" + b"\xff" * 8 + b".",
    b"\x80\x04\x8d" + b"\xff" * 8 + b"x.",
    b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f" + b"x.",
    b"\x80\x04\x8b\xff\xff\xff\x7f" + b"x.",
    b"\x80\x04\x8a\xff.",
    b"\x80\xff.",
    b"\x80\x04" + b"(" * 60000 + b".",
    b"\x80\x04" + b")" * 60000 + b".",
    b"\x80\x04" + b"\x94" * 100 + b".",
    b"\x80\x04h\xff.",
    b"\x80\x04j\xff\xff\xff\xff.",
    b"\x80\x04\x93.",
    b"\x80\x04\x81.",
    b"\x80\x04R.",
    b"\x80\x04b.",
    b"\x80\x04u.",
    b"\x80\x04N.",
    b"\x80\x04}.",
    b"\x80\x04" + b"K\x01" * 30000 + b".",
    b".", b"", b"\x00" * 64, b"garbage",
    b"\x80\x04" + b"N" * (1 << 20) + b".",
], ids=range(24))
def test_a_pickle_bomb_is_refused(server, worker, wrapper):
    refused(server, worker, wrapper)


@pytest.mark.parametrize("changes", [
    dict(handle=()), dict(handle=(0, b"", 1, 0, b"", 0, b"", True)), dict(handle=None),
    dict(handle=(0, b"\x03c" + b"x" * 64, 4096, 0, b"", 0, b"", True)),
    dict(handle=(0, b"\x02z" + b"x" * 64, 4096, 0, b"", 0, b"", True)),
    dict(handle=(0, b"\x02c" + b"x" * 64, -1, 0, b"", 0, b"", True)),
    dict(handle=(0, b"\x02c" + b"x" * 64, 4096, -1, b"", 0, b"", True)),
    dict(handle=(0, b"\x02c" + b"x" * 64, 1 << 70, 0, b"", 0, b"", True)),
    dict(shape=7), dict(stride="x"), dict(storage_offset=-1), dict(storage_offset=1 << 64),
    dict(device_uuid=""), dict(device_uuid="x" * 36 + "y"), dict(device_uuid=5),
], ids=lambda changes: next(iter(changes)))
def test_a_wrapper_with_impossible_fields_is_refused(server, worker, changes):
    if "shape" in changes:
        wrapper = pickles.wrapper().replace(b"\x8c\x05shape", b"\x8c\x05sharp")
    else:
        wrapper = pickles.wrapper(**changes)
    well_formed = refused(server, worker, pickles.wrapper())
    assert refused(server, worker, wrapper) != well_formed, "the decoder must see it, not CUDA"


@pytest.mark.parametrize("wrapper", [
    b"KVDHOST1", b"KVDHOST2" + b"\0" * 20, host_wrapper("x", 0, 65536)[:-1],
    host_wrapper("x", 0, 65536) + b"y", b"KVDHOST1" + b"\xff" * 20 + b"name",
    b"kvdhost1" + host_wrapper("x", 0, 65536)[8:]])
def test_a_broken_host_wrapper_is_refused(server, worker, wrapper):
    refused(server, worker, wrapper)


def test_a_wrapper_that_is_too_long_is_refused(server, worker):
    text = refused(server, worker, pickles.wrapper(device_uuid="x" * (1 << 20)))
    assert text


def test_after_all_refusals_the_worker_still_registers(server, worker):
    for wrapper in (b"", b"\x80\x04.", pickles.wrapper(), host_wrapper("nothing", 0, 1)):
        with pytest.raises((*REFUSALS, PegaFlowError)):
            worker.register(wrapper_bytes_list=[wrapper])
    worker.register()
    worker.save([0], hashes(1))
    assert worker.query(hashes(1)).num_hit_blocks == 1
