"""HTTP/2 frames (RFC 9113) as a client sends them that keeps to no rules."""

import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
# Statuses that HPACK has in its table (RFC 7541, appendix A).
INDEXED = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(**values):
    numbers = {"window": INITIAL_WINDOW_SIZE}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", numbers[name], value) for name, value in values.items()))


def block(fields):
    """A header block of literals that the receiver does not keep (RFC 7541, section 6.2.2)."""
    return b"".join(b"\0" + text(name) + text(value) for name, value in fields)


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    length = bytes([len(value)]) if len(value) < 127 else b"\x7f" + number(len(value) - 127)
    return length + value


def number(value):
    out = bytearray()
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes(out + bytes([value]))


def request(stream, authority, path="/", fields=(), flags=END_STREAM | END_HEADERS):
    head = [(":method", "GET"), (":scheme", "https"), (":path", path)]
    if authority is not None:
        head.append((":authority", authority))
    return frame(HEADERS, flags, stream, block([*head, *fields]))


def connect(port, name, address="127.0.0.1", window=65535, timeout=30):
    """A TLS connection that has agreed on HTTP/2, with its preface sent."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", port), timeout, (address, 0))
    try:
        stream = tls.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise
    stream.sendall(PREFACE + settings(window=window))
    return stream


def answer(stream, wanted=1):
    """The status of a stream's answer where the table has it; 0 for another, None where there is none."""
    while True:
        head = exactly(stream, 9)
        length, kind, number_ = int.from_bytes(head[:3], "big"), head[3], int.from_bytes(head[5:], "big")
        body = exactly(stream, length)
        if kind == HEADERS and number_ == wanted:
            # A server may change the size of its table first.
            while body and body[0] & 0xE0 == 0x20:
                body = body[1:]
            return INDEXED.get(body[0], 0)
        if kind == GOAWAY or kind == RST_STREAM and number_ == wanted:
            return None


def exactly(stream, count):
    parts = b""
    while len(parts) < count:
        part = stream.recv(count - len(parts))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return parts
