"""A second client, generated from engine.proto, for what the first one cannot send."""

import pathlib
import sys
import tempfile

import grpc
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROTO = ROOT / "transport" / "grpc" / "proto" / "engine.proto"


def _generate():
    folder = tempfile.mkdtemp(prefix="kvd-wire-proto-")
    status = protoc.main(["protoc", f"-I{PROTO.parent}", f"--python_out={folder}",
                          f"--grpc_python_out={folder}", str(PROTO)])
    assert status == 0, f"protoc ended with {status}"
    sys.path.insert(0, folder)
    import engine_pb2
    import engine_pb2_grpc
    sys.path.remove(folder)
    return engine_pb2, engine_pb2_grpc


pb, pb_grpc = _generate()

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def connect(server):
    """(stub, channel) without a limit of its own on message sizes."""
    channel = grpc.insecure_channel(server.grpc_address, UNLIMITED)
    return pb_grpc.EngineStub(channel), channel


def refusal(call, *arguments, timeout=30, **options):
    """The status code and text of a call that must fail."""
    try:
        answer = call(*arguments, timeout=timeout, **options)
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"the call succeeded: {answer}")


def registration(worker, **changes):
    """worker.registration() as a RegisterContextRequest."""
    names = {"wrapper_bytes_list": "wrapper_bytes", "num_blocks_list": "num_blocks",
             "bytes_per_block_list": "bytes_per_block", "segments_list": "segments",
             "kv_stride_bytes_list": "kv_stride_bytes"}
    fields = {names.get(key, key): value for key, value in worker.registration().items()}
    del fields["transfer_backend"]
    fields.update(changes)
    return pb.RegisterContextRequest(**fields)
