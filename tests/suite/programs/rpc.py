"""A service of gRPC, and a client that reaches it through a gateway.

rpc.py serve: says its port, in clear
rpc.py call PORT ROOTS: calls a.test at this port of 127.0.0.1, in TLS
"""

import queue
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

PATIENCE = 120


def one(request, context):
    if request == b"absent":
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
    context.set_trailing_metadata((("length", str(len(request))),))
    return request


def each(requests, context):
    for request in requests:
        yield request
        yield request.upper()


def serve():
    handlers = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Each": grpc.stream_stream_rpc_method_handler(each),
    }
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"port={port}.", flush=True)
    server.wait_for_termination()


def call(port, roots):
    with open(roots, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options = [("grpc.ssl_target_name_override", "a.test")]
    channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
    one = channel.unary_unary("/test.Echo/One")
    each = channel.stream_stream("/test.Echo/Each")

    answer, done = one.with_call(b"x" * 3_000_000, timeout=PATIENCE)
    assert answer == b"x" * 3_000_000
    assert ("length", "3000000") in done.trailing_metadata(), done.trailing_metadata()
    try:
        one(b"absent", timeout=PATIENCE)
        raise AssertionError("it is there")
    except grpc.RpcError as error:
        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")

    # The next word is sent when the last was answered: nobody keeps it on its way.
    words = queue.Queue()
    answers = each(iter(words.get, None), timeout=PATIENCE)
    for word in [b"a", b"b" * 200_000, b"c"]:
        words.put(word)
        assert [next(answers), next(answers)] == [word, word.upper()]
    words.put(None)
    assert list(answers) == []

    calls = [one.future(str(number).encode(), timeout=PATIENCE) for number in range(300)]
    assert [int(call.result()) for call in calls] == list(range(300))
    print("all is well")


if sys.argv[1] == "serve":
    serve()
else:
    call(*sys.argv[2:])
