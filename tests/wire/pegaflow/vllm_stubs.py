"""Stand-ins for the few names of torch and vLLM that PegaFlow's connectors import.

Only what the connectors touch exists, so a name that a later release starts to use fails loudly.
"""

import dataclasses
import enum
import sys
import types
from types import SimpleNamespace

RANKS = SimpleNamespace(tp=0, pp=0, device=0)


class Tensor:
    """A KV cache in host memory with the shape and strides that torch would report."""

    def __init__(self, host, shape, element_size=2, strides=None):
        self.host, self.shape, self._element_size = host, tuple(shape), element_size
        self.device, self.dtype = "cuda:0", "bfloat16"
        if strides is None:
            strides, step = [], 1
            for extent in reversed(self.shape):
                strides.insert(0, step)
                step *= extent
        self._strides = tuple(strides)

    def stride(self, dimension=None):
        return self._strides if dimension is None else self._strides[dimension]

    def element_size(self):
        return self._element_size

    def storage_offset(self):
        return 0

    def data_ptr(self):
        return id(self.host)

    def untyped_storage(self):
        return SimpleNamespace(data_ptr=self.data_ptr)


@dataclasses.dataclass
class Spec:
    """One cache group's specification."""

    block_size: int


class FullAttentionSpec(Spec):
    pass


class MLAAttentionSpec(FullAttentionSpec):
    pass


@dataclasses.dataclass
class MambaSpec(Spec):
    mamba_cache_mode: str = "align"


@dataclasses.dataclass
class SlidingWindowSpec(Spec):
    sliding_window: int = 0


class UniformTypeKVCacheSpecs(Spec):
    def __init__(self, block_size, kv_cache_specs):
        super().__init__(block_size)
        self.kv_cache_specs = kv_cache_specs


class ConnectorRole(enum.Enum):
    SCHEDULER = "scheduler"
    WORKER = "worker"


class ConnectorBase:
    """vLLM's base class hands the step's metadata to the worker side."""

    def __init__(self, vllm_config, role, kv_cache_config=None):
        self._metadata = None

    def bind_connector_metadata(self, metadata):
        self._metadata = metadata

    def _get_connector_metadata(self):
        return self._metadata


@dataclasses.dataclass
class ConnectorStats:
    data: dict = dataclasses.field(default_factory=dict)


def resolve_block_sizes(kv_cache_config, vllm_config):
    """The scheduler's block and the span of one hash: the largest and the smallest group block."""
    sizes = [group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups]
    return max(sizes), min(sizes)


def _empty(name):
    return type(name, (), {})


MODULES = {
    "torch": dict(
        Tensor=Tensor, dtype=str, device=str, bfloat16="bfloat16",
        cuda=SimpleNamespace(is_available=lambda: True, current_device=lambda: RANKS.device,
                             synchronize=lambda device=None: None)),
    "vllm": {},
    "vllm.config": dict(VllmConfig=object),
    "vllm.distributed": {},
    "vllm.distributed.kv_transfer": {},
    "vllm.distributed.kv_transfer.kv_connector": {},
    "vllm.distributed.kv_transfer.kv_connector.v1": {},
    "vllm.distributed.kv_transfer.kv_connector.v1.base": dict(
        KVConnectorBase_V1=ConnectorBase, KVConnectorRole=ConnectorRole,
        KVConnectorMetadata=_empty("KVConnectorMetadata"),
        KVConnectorWorkerMetadata=_empty("KVConnectorWorkerMetadata"),
        SupportsHMA=_empty("SupportsHMA")),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": dict(
        KVConnectorStats=ConnectorStats, KVConnectorPromMetrics=_empty("KVConnectorPromMetrics"),
        PromMetric=_empty("PromMetric"), PromMetricT=_empty("PromMetricT")),
    "vllm.distributed.parallel_state": dict(
        get_tensor_model_parallel_rank=lambda: RANKS.tp,
        get_pp_group=lambda: SimpleNamespace(rank_in_group=RANKS.pp)),
    "vllm.v1": {},
    "vllm.v1.core": {},
    "vllm.v1.core.kv_cache_utils": dict(resolve_kv_cache_block_sizes=resolve_block_sizes),
    "vllm.v1.kv_cache_interface": dict(
        FullAttentionSpec=FullAttentionSpec, MLAAttentionSpec=MLAAttentionSpec,
        MambaSpec=MambaSpec, SlidingWindowSpec=SlidingWindowSpec,
        UniformTypeKVCacheSpecs=UniformTypeKVCacheSpecs),
}


def install():
    """Puts the modules where the connectors' imports look."""
    for name, contents in MODULES.items():
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
