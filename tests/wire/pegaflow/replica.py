"""A vLLM replica reduced to what its KV connector sees: a scheduler, workers, block tables."""

import os
from types import SimpleNamespace

import vllm_stubs

vllm_stubs.install()

import pegaflow.connector.worker as worker_module  # noqa: E402
from pegaflow.connector import PegaKVConnector  # noqa: E402

from host_memory import HostMemory, HostTensor  # noqa: E402
from kvd_server import eventually  # noqa: E402

ROLE = vllm_stubs.ConnectorRole
BLOCK = 16

# The one thing that needs a GPU: the handle of a tensor. kvd's host wrapper takes its place.
worker_module.CudaIPCWrapper = lambda tensor: SimpleNamespace(encoded=tensor.host.wrapper())
worker_module.pickle = SimpleNamespace(dumps=lambda wrapper: wrapper.encoded)


def vllm_config(server, name, tp=1, pp=1, mla=False, options=None, block=BLOCK, model="model"):
    extra = {"pegaflow.host": "http://127.0.0.1",
             "pegaflow.port": server.grpc_address.rsplit(":", 1)[1], **(options or {})}
    return SimpleNamespace(
        instance_id="", additional_config={},
        kv_transfer_config=SimpleNamespace(
            engine_id=name, get_from_extra_config=lambda key, default: extra.get(key, default)),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=tp, pipeline_parallel_size=pp, world_size=tp * pp,
            data_parallel_size=1, data_parallel_rank_local=None,
            decode_context_parallel_size=1, prefill_context_parallel_size=1),
        model_config=SimpleNamespace(
            model=model, dtype="bfloat16", get_total_num_kv_heads=lambda: 8,
            get_head_size=lambda: 64, get_total_num_hidden_layers=lambda: 2,
            hf_text_config=SimpleNamespace(kv_lora_rank=512) if mla else SimpleNamespace()),
        cache_config=SimpleNamespace(block_size=block, cache_dtype="auto",
                                     prefix_caching_hash_algo="sha256"),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False))


class Request:
    """The fields of a vLLM request that the connector reads."""

    def __init__(self, request_id, block_hashes, tokens=None, block=BLOCK):
        self.request_id, self.block_hashes = request_id, list(block_hashes)
        self.num_tokens = len(self.block_hashes) * block + 5 if tokens is None else tokens
        self.num_prompt_tokens, self.num_computed_tokens = self.num_tokens, 0
        self.lora_request = self.cache_salt = self.mm_features = None


class Blocks:
    """A block table as vLLM hands it to the connector; none of it is computed yet."""

    def __init__(self, ids_by_group):
        self._ids = ids_by_group
        self.blocks = [[SimpleNamespace(block_hash=None) for _ in ids] for ids in ids_by_group]

    def get_block_ids(self):
        return tuple(list(ids) for ids in self._ids)


def scheduler_output(new=(), tokens=None, block_state=None):
    return SimpleNamespace(
        scheduled_new_reqs=list(new), num_scheduled_tokens=tokens or {},
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[], new_block_ids=[], resumed_req_ids=set(), num_computed_tokens=[]),
        preempted_req_ids=set(), kv_connector_block_state=block_state)


class Replica:
    """The scheduler side and one connector a worker, with their tensors."""

    def __init__(self, server, name, tp=1, pp=1, cache=None, **options):
        config = vllm_config(server, name, tp, pp, **options)
        self.name, self.cache = name, cache
        self.scheduler = PegaKVConnector(config, ROLE.SCHEDULER, cache)
        self.workers, self.tensors, self._memories = [], [], []
        for rank in range(tp * pp):
            vllm_stubs.RANKS.tp, vllm_stubs.RANKS.pp = rank % tp, rank // tp
            vllm_stubs.RANKS.device = rank
            self.workers.append(PegaKVConnector(config, ROLE.WORKER, cache))
            self.tensors.append({})

    def tensor(self, rank, name, shape, seed=None):
        """A KV cache of that shape, two bytes an element, filled with seeded bytes."""
        size = 2
        for extent in shape:
            size *= extent
        memory = HostMemory(size, (self.name, rank if seed is None else seed, name))
        self._memories.append(memory)
        tensor = vllm_stubs.Tensor(HostTensor(memory, 0, size), shape)
        self.tensors[rank][name] = tensor
        return tensor

    def register(self):
        for worker, tensors in zip(self.workers, self.tensors):
            worker.register_kv_caches(tensors)

    # One request, step by step.

    def match(self, request, computed=0):
        return self.scheduler.get_num_new_matched_tokens(request, computed)

    def step(self, output):
        """One scheduler step on every worker; True from get_finished ends up in the scheduler."""
        metadata = self.scheduler.build_connector_meta(output)
        for worker in self.workers:
            worker.bind_connector_metadata(metadata)
            worker.start_load_kv(None)
            worker.wait_for_save()
        return metadata

    def prefill(self, request, ids_by_group, loaded_tokens=0, block_state=None):
        """Schedules the rest of the prompt, which saves its full blocks."""
        if not loaded_tokens:
            self.scheduler.update_state_after_alloc(request, Blocks(ids_by_group), 0)
        rest = request.num_tokens - loaded_tokens
        scheduled = SimpleNamespace(req_id=request.request_id, block_ids=ids_by_group,
                                    num_computed_tokens=loaded_tokens)
        return self.step(scheduler_output(
            [scheduled], {request.request_id: rest}, block_state))

    def load(self, request, ids_by_group, tokens):
        """Loads what `match` found; waits until every worker reports it."""
        self.scheduler.update_state_after_alloc(request, Blocks(ids_by_group), tokens)
        self.step(scheduler_output())
        for worker in self.workers:
            eventually(lambda w=worker: request.request_id in (w.get_finished(set())[1] or ()),
                       90, f"the load of {request.request_id}")

    def finish(self, request, ids_by_group):
        """Ends the request and waits for its saves."""
        request.num_computed_tokens = request.num_tokens
        held, _ = self.scheduler.request_finished_all_groups(request, ids_by_group)
        if held:
            waiting = list(self.workers)
            if self.cache is not None:
                self.step(scheduler_output())

            def saved():
                done = {request.request_id}
                waiting[:] = [w for w in waiting
                              if request.request_id not in (w.get_finished(done)[0] or ())]
                return not waiting

            eventually(saved, 90, f"the saves of {request.request_id}")
            reports = [report() for report in (getattr(worker, "build_connector_worker_meta", None)
                                               for worker in self.workers) if report]
            self.scheduler.update_connector_output(SimpleNamespace(
                finished_sending={request.request_id},
                kv_connector_worker_meta=reports[0] if reports else None))

    def save_prompt(self, request, ids_by_group):
        assert self.match(request) == (0, False)
        self.prefill(request, ids_by_group)
        self.finish(request, ids_by_group)

    def close(self):
        # One worker unregisters for all; a pipeline's later stages would be told "not found".
        for worker in self.workers[1:]:
            worker._worker._registered_layers.clear()
        for connector in [*self.workers, self.scheduler]:
            connector.shutdown()
        for memory in self._memories:
            memory.close()


os.environ.pop("CUDA_VISIBLE_DEVICES", None)
