"""A client process for the session tests: registers, opens the session, and waits to be killed."""

import sys
import threading

import engine
from pegaflow.pegaflow import EngineRpcClient


def main():
    endpoint, instance, namespace = sys.argv[1:4]
    client = EngineRpcClient(endpoint)
    client.start_session_watcher(instance, namespace, 1, 1)
    layers = [engine.kv_split(f"layer.{i}", 8, 4096) for i in range(2)]
    worker = engine.Worker(client, instance, namespace, layers).register()
    worker.save([0, 1], engine.hashes(2, instance))
    for memory in worker.memories:
        print("memory", memory.name)
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
