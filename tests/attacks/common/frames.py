"""hsmux's frames, as a program sends them that keeps to no rules: a 32-bit length, then CBOR."""

import os
import socket
import struct

import cbor2

CKM_ECDSA, CKM_AES_ECB, CKM_AES_GCM, CKM_AES_CBC, CKM_SHA256_HMAC = 0x1041, 0x1081, 0x1087, 0x1082, 0x251
SIGN, ENCRYPT, DECRYPT = 0, 2, 3
PRIVATE_KEY, SECRET_KEY = 3, 4
CKA_LABEL, CKA_ID = 3, 0x102
MINUTE_US = 60_000_000


def frame(message):
    body = cbor2.dumps(message)
    return struct.pack("<I", len(body)) + body


HELLO_NAME = "attack"


def hello(program=HELLO_NAME):
    return frame([1, 2, os.urandom(16), program])


def execute(*operations, remaining=MINUTE_US):
    return [0, [[[operation, remaining] for operation in operations]]]


def random(length):
    return [1, [length]]


def use(verb, key, mechanism, data):
    return [0, [verb, token_object(key), mechanism, data]]


def token_object(key):
    return [0, [key]]


def plain(kind):
    return [kind, [0, []]]


def login(pin):
    return [4, [pin]]


CATALOGUE = [3, [0]]
INFO = [1, []]


def hand_over(key):
    return [10, [key]]


class Refused(Exception):
    """The daemon has answered, but by an error."""


class Connection:
    """One connection to a listener, greeted unless told otherwise."""

    def __init__(self, path, timeout=60.0, greet=True, program=HELLO_NAME):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        if greet:
            self.socket.sendall(hello(program))
            kind, said = cbor2.loads(self.receive())
            if kind != 0:
                raise Refused(said)

    def receive(self):
        (length,) = struct.unpack("<I", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count):
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the daemon has closed the connection")
            parts += part
        return bytes(parts)

    def call(self, message):
        """The answer: its number and its fields."""
        return self.ask(frame(message))

    def ask(self, encoded):
        self.socket.sendall(encoded)
        kind, fields = cbor2.loads(self.receive())[1]
        if kind == 1:
            raise Refused(fields[0])
        return kind, fields

    def execute(self, *operations):
        """The results of operations; the first that failed is raised."""
        _, (results,) = self.call(execute(*operations))
        return [outcome(result) for result in results]

    def objects(self):
        """What the catalogue shows: class and name of each object, and its attributes."""
        _, (view,) = self.call(CATALOGUE)
        return [(key, dict(map(tuple, attributes))) for key, attributes in view[2]]

    def find(self, kind, label):
        for key, attributes in self.objects():
            if key[0] == kind and attributes.get(CKA_LABEL) == label.encode():
                return key
        raise Refused(f"no object {label}")

    def close(self):
        self.socket.close()


def go_direct(connection, key, call, most=500):
    """Has the connection handed over to a worker, once the daemon has seen by some calls that the token is fast."""
    for _ in range(most):
        try:
            connection.call(hand_over(key))
            return
        except Refused as error:
            last = error
            connection.ask(call)
    raise last


def outcome(result):
    failed, value = result
    if failed:
        raise Refused(value)
    return value
