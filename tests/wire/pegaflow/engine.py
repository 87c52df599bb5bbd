"""An inference engine made of host memory: it registers, saves, queries and loads as vLLM would."""

import hashlib
import time
from dataclasses import dataclass

from host_memory import HostMemory, HostTensor
from kvd_server import eventually
from pegaflow.pegaflow import EngineRpcClient, PyLoadState, QueryReady

LOAD_SECONDS = 90


def hashes(count, salt="", size=32):
    """`count` chained block hashes, the same for the same salt."""
    chain, parent = [], salt.encode()
    for index in range(count):
        parent = hashlib.sha256(parent + index.to_bytes(4, "little")).digest()
        chain.append(parent[:size])
    return chain


@dataclass(frozen=True)
class Layer:
    """How one layer lies in memory; `stride` is the distance from K to V, 0 with one segment."""

    name: str
    num_blocks: int
    segment_bytes: int
    segments: int = 1
    stride: int = 0
    group: int = 0

    @property
    def span(self):
        if self.segments == 2 and self.stride != self.segment_bytes:
            return self.stride + self.num_blocks * self.segment_bytes
        return self.num_blocks * self.segment_bytes * self.segments

    def pieces(self, block):
        """(offset, length) of every segment of a block."""
        if self.segments == 2 and self.stride != self.segment_bytes:
            first = block * self.segment_bytes
            return [(first, self.segment_bytes), (self.stride + first, self.segment_bytes)]
        length = self.segment_bytes * self.segments
        return [(block * length, length)]


def kv_split(name, blocks, segment, padding=0, group=0):
    """K of every block, then V of every block (FlashAttention's shape [2, blocks, ...])."""
    return Layer(name, blocks, segment, 2, blocks * segment + padding, group)


def kv_fused(name, blocks, segment, group=0):
    """K and V of a block side by side, registered as two segments one segment apart."""
    return Layer(name, blocks, segment, 2, segment, group)


def blocks_first(name, blocks, block_bytes, group=0):
    """One contiguous run of bytes a block (cross-layer, MLA, recurrent state)."""
    return Layer(name, blocks, block_bytes, 1, 0, group)


@dataclass(frozen=True)
class Place:
    """A worker's place in its instance."""

    device: int = 0
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    world: int = 1
    page_first: bool = False
    backend: str = "direct"


class Worker:
    """One device of an instance, with the memory of its layers."""

    def __init__(self, client, instance, namespace, layers, place=Place(), seed="", shared=False):
        self.client, self.instance, self.namespace = client, instance, namespace
        self.layers = {layer.name: layer for layer in layers}
        self.place = place
        self.memories, self.tensors = [], {}
        self.save_message = None  # of the last save; kvd says in it what it had to leave out
        if shared:
            memory, offset = self._memory(sum(l.span for l in layers) + 64, (seed, "all")), 64
            for layer in layers:
                self.tensors[layer.name] = HostTensor(memory, offset, layer.span)
                offset += layer.span
        else:
            for layer in layers:
                memory = self._memory(layer.span, (seed, layer.name))
                self.tensors[layer.name] = HostTensor(memory, 0, layer.span)

    def _memory(self, size, seed):
        memory = HostMemory(size, (self.instance, self.place.device, seed))
        self.memories.append(memory)
        return memory

    def close(self):
        for memory in self.memories:
            memory.close()

    def registration(self, **changes):
        """The arguments of register_context_batch, some of them replaced."""
        layers, place = list(self.layers.values()), self.place
        arguments = dict(
            instance_id=self.instance, namespace=self.namespace, tp_rank=place.tp_rank,
            pp_rank=place.pp_rank, tp_size=place.tp_size, world_size=place.world,
            device_id=place.device, layer_names=[layer.name for layer in layers],
            wrapper_bytes_list=[self.tensors[layer.name].wrapper() for layer in layers],
            num_blocks_list=[layer.num_blocks for layer in layers],
            bytes_per_block_list=[layer.segment_bytes for layer in layers],
            kv_stride_bytes_list=[layer.stride for layer in layers],
            segments_list=[layer.segments for layer in layers],
            transfer_backend=place.backend, page_first=place.page_first,
            layer_group_ids=[layer.group for layer in layers])
        arguments.update(changes)
        return arguments

    def register(self, **changes):
        assert self.client.register_context_batch(**self.registration(**changes)) == (True, "")
        return self

    # Saving.

    def save(self, block_ids, block_hashes, layers=None):
        """Saves the same blocks of every layer (or of the layers named)."""
        names = self.layers if layers is None else layers
        return self.save_layers([(name, block_ids, block_hashes) for name in names])

    def save_layers(self, saves):
        place = self.place
        ok, self.save_message = self.client.save(
            self.instance, place.tp_rank, place.pp_rank, place.device,
            [(name, list(ids), list(block_hashes)) for name, ids, block_hashes in saves])
        assert ok is True
        return self

    # Looking up.

    def query(self, block_hashes, req_id="request", wait=False, group=0):
        return query(self.client, self.instance, block_hashes, req_id, wait, group)

    # Loading.

    def start_load(self, loads, groups=None, state=None):
        """`loads`: (lease, targets per group); `groups`: layer names per group."""
        state = PyLoadState() if state is None else state
        groups = [list(self.layers)] if groups is None else groups
        answer = self.client.load(
            self.instance, self.place.tp_rank, self.place.device, state.shm_name(), groups,
            [(lease, [list(targets) for targets in by_group]) for lease, by_group in loads])
        assert answer == (True, "")
        return state

    def load(self, lease, targets):
        """Loads one lease into `targets` of every layer and waits until it is done."""
        return wait_loaded(self.start_load([(lease, [targets])]))

    # Contents.

    def block(self, name, block):
        tensor = self.tensors[name]
        return b"".join(tensor.read(*piece) for piece in self.layers[name].pieces(block))

    def put_block(self, name, block, content):
        tensor = self.tensors[name]
        for start, length in self.layers[name].pieces(block):
            tensor.write(start, content[:length])
            content = content[length:]

    def images(self):
        return {name: tensor.image() for name, tensor in self.tensors.items()}

    def blocks_of(self, images, name, block):
        """A block as it was when `images` was taken."""
        return b"".join(bytes(images[name][start:start + length])
                        for start, length in self.layers[name].pieces(block))

    def expect_blocks(self, images, contents):
        """`images` with some blocks replaced is exactly what the memory holds now.

        `contents`: {(layer, block): bytes}. Every other byte must be as it was.
        """
        for (name, block), content in contents.items():
            for start, length in self.layers[name].pieces(block):
                images[name][start:start + length] = content[:length]
                content = content[length:]
        for name, image in images.items():
            found = self.tensors[name].image()
            assert found == image, f"{name} differs first at byte {first_difference(found, image)}"


def first_difference(left, right):
    return next(i for i, (a, b) in enumerate(zip(left, right)) if a != b)


def query(client, instance, block_hashes, req_id="request", wait=False, group=0):
    """Polls as the scheduler does until the answer is ready."""
    def ready():
        answer = client.query_prefetch(
            instance, list(block_hashes), req_id=req_id, wait_for_full_prefix=wait, group_id=group)
        return answer if isinstance(answer, QueryReady) else None

    answer = eventually(ready, LOAD_SECONDS, f"an answer to {req_id}")
    assert bool(answer.lease) == (answer.num_hit_blocks > 0 and not incomplete(answer, wait, group,
                                                                              block_hashes))
    assert len(answer.lease) in (0, 16)
    assert answer.num_hit_blocks <= len(block_hashes)
    return answer


def incomplete(answer, wait, group, block_hashes):
    """An exact-set query that misses anything carries no lease."""
    return wait and group > 0 and answer.num_hit_blocks < len(block_hashes)


def finish(state):
    """Waits for the flag of a load: 1 or -1."""
    deadline = time.monotonic() + LOAD_SECONDS
    while not state.is_ready():
        assert time.monotonic() < deadline, f"the load was still pending after {LOAD_SECONDS} s"
        time.sleep(0.0005)
    return state.get_state()


def wait_loaded(state):
    outcome = finish(state)
    assert outcome == 1, f"the load ended with state {outcome}"
    return state


def connect(server):
    return EngineRpcClient(server.endpoint)
