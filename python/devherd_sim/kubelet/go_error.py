"""gRPC errors in the words of the kubelet's gRPC library, which reach logs and pod messages."""

import grpc


def text(error: grpc.aio.AioRpcError) -> str:
    """`rpc error: code = FailedPrecondition desc = device busy`."""
    words = error.code().name.replace("CANCELLED", "CANCELED").split("_")
    code = "OK" if words == ["OK"] else "".join(word.capitalize() for word in words)
    return f"rpc error: code = {code} desc = {error.details()}"


CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"
