"""Pickles as torch and PegaFlow's CudaIPCWrapper make them, without torch and without CUDA."""

import contextlib
import pickle
import struct
import sys
import types


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Dtype:
    """torch.dtype objects pickle as a global of the module torch."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


class CudaIPCWrapper:
    """Only the name and the attributes count; pickle writes no code."""


Size.__module__ = Dtype.__module__ = "torch"
CudaIPCWrapper.__module__ = "pegaflow.ipc_wrapper"
CudaIPCWrapper.__qualname__ = "CudaIPCWrapper"


@contextlib.contextmanager
def _stand_ins(dtype):
    """pickle looks each global up in sys.modules before it writes its name."""
    torch = types.ModuleType("torch")
    torch.Size = Size
    setattr(torch, dtype.name, dtype)
    wrapper = types.ModuleType("pegaflow.ipc_wrapper")
    wrapper.CudaIPCWrapper = CudaIPCWrapper
    replaced = {"torch": torch, "pegaflow.ipc_wrapper": wrapper}
    before = {name: sys.modules.get(name) for name in replaced}
    sys.modules.update(replaced)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def ipc_handle(torch_generation):
    """The handle bytes: bare before torch 2.5, then with a version and a kind in front."""
    raw = bytes(range(64))
    if torch_generation == "2.4":
        return raw
    if torch_generation == "expandable":
        return b"\x02e" + struct.pack("<iiQQ", 4711, 0, 2 << 20, 1) + struct.pack("<i", 33)
    return b"\x02c" + raw


def wrapper(protocol=4, torch_generation="2.11", dtype="bfloat16", shape=(2, 8, 16, 8, 64),
            storage_bytes=1 << 20, storage_offset=0, **changes):
    """The bytes that pickle.dumps(CudaIPCWrapper(tensor)) gives."""
    stride, step = [], 1
    for extent in reversed(shape):
        stride.insert(0, step)
        step *= extent
    item, element = CudaIPCWrapper(), Dtype(dtype)
    state = dict(
        handle=(0, ipc_handle(torch_generation), storage_bytes, 512, b"/torch_455_2960210824_0",
                0, b"\x05" * 64, True),
        dtype=element, shape=Size(shape), stride=tuple(stride), storage_offset=storage_offset,
        device_uuid="6b1f3a52-0c8d-4f9e-9d55-0123456789ab")
    state.update(changes)
    item.__dict__.update(state)
    with _stand_ins(element):
        return pickle.dumps(item, protocol)


def global_call(module, name, argument):
    """A pickle that calls module.name(argument) when it is executed."""
    return (b"\x80\x04c" + module.encode() + b"\n" + name.encode() + b"\n"
            + b"X" + struct.pack("<I", len(argument)) + argument.encode() + b"\x85R.")
