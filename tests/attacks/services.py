"""Siblings: the same attacks on the broker over HTTP, the plain HTTP port and the port of a node."""

import json
import socket
import time

from broker_keys import SECTIONS as BROKER
from broker_keys import make_keys
from common import http2
from common.actors import ANOTHER, Attackers
from common.honest import signer
from common.measure import fails_nothing, keeps_memory, keeps_rate, observe
from common.pool import Pool
from http2 import NAME, SECTIONS, WebPool

NUMBER = "1.3 to 1.8"
RATE = 0.3
MOST_MB = 400


def requests(port, words, connections, pause=0.02, reads=False, dribble=False):
    """Connections that say something, byte by byte or at once, and then read nothing or a little at a time."""

    def attack(_, stop, begun):
        opened = []
        while not stop.is_set():
            while len(opened) < connections and not stop.is_set():
                try:
                    stream = socket.create_connection(("127.0.0.1", port), 5)
                    stream.setblocking(False)
                    opened.append([stream, words])
                except OSError:
                    break
            begun()
            opened = [each for each in opened if goes_on(each)]
            time.sleep(pause)

    def goes_on(each):
        stream, rest = each
        try:
            if rest:
                each[1] = rest[stream.send(rest[:1] if dribble else rest):]
            elif reads and not stream.recv(1 << 10):
                stream.close()
                return False
        except BlockingIOError:
            pass
        except OSError:
            stream.close()
            return False
        return True

    return attack


def head(token, method, path, body=b"", more=b""):
    return (f"{method} {path} HTTP/1.1\r\nHost: broker\r\nX-Vault-Token: {token}\r\n"
            f"Content-Length: {len(body)}\r\n").encode() + more + b"\r\n" + body


def batches(token, path):
    """Short bodies that ask for long answers, an error for each item, over HTTP/2 with a closed window."""
    body = b'{"batch_input":[' + b",".join([b"{}"] * 10_000) + b"]}"
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "broker"), ("x-vault-token", token)]
    words = http2.PREFACE + http2.settings(window=0)
    for stream in 1, 3:
        words += http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.block(fields))
        for at in range(0, len(body), 1 << 14):
            words += http2.frame(http2.DATA, 0, stream, body[at:at + (1 << 14)])
        words += http2.frame(http2.DATA, http2.END_STREAM, stream)
    return words


def on_the_broker(bench):
    with Pool(bench.binaries, sections=BROKER) as pool:
        port, token = make_keys(pool)
        encrypt = "/v1/transit/encrypt/app-gcm"
        numbers = b'{"x":[' + b"1," * (15 << 20) + b"1]}"
        deep = b'{"plaintext":' + b"[" * (4 << 20)
        items = json.dumps({"batch_input": [{}] * 2_000_000}).encode()
        random = head(token, "POST", "/v1/transit/random/131072", b"{}")
        stranger = head("none", "POST", encrypt, numbers)
        h2 = http2.PREFACE + http2.settings(window=0) + b"".join(
            http2.request(1 + 2 * number, "broker", "/v1/transit/random/131072", [("x-vault-token", token)])
            for number in range(200))
        ping = http2.PREFACE + http2.settings(window=65535) + http2.frame(http2.PING, 0, 0, b"pingpong") * 200_000
        pong = http2.PREFACE + http2.settings(window=65535) + http2.frame(http2.PING, http2.ACK, 0, b"pingpong") * 200_000
        variants = [
            ("the broker: PING over HTTP/2 from strangers, 20 connections", requests(port, ping, 20, reads=True)),
            ("the broker: batches of errors over HTTP/2, unread, 200 connections", requests(port, batches(token, encrypt), 200)),
            ("the broker: answers to no PING over HTTP/2, 20 connections", requests(port, pong, 20, reads=True)),
            ("the broker: a body with 16 million numbers, 8 clients", requests(port, head(token, "POST", encrypt, numbers), 8)),
            ("the broker: a body of 4 million brackets, 8 clients", requests(port, head(token, "POST", encrypt, deep), 8)),
            ("the broker: a batch of 2 million items, 8 clients", requests(port, head(token, "POST", encrypt, items), 8)),
            ("the broker: bodies of strangers, 20 connections", requests(port, stranger, 20)),
            ("the broker: 2,000 unread answers of 128 KiB", requests(port, random, 2000)),
            ("the broker: 100 connections of HTTP/2 whose window is closed, 200 streams", requests(port, h2, 100)),
            ("the broker: heads byte by byte, 3,000 connections", requests(port, random, 3000, dribble=True, pause=0.2)),
        ]
        for title, attack in bench.choose(variants, 2):
            yield trial(bench, pool, title, attack)


def on_the_plain_port(bench):
    sections = SECTIONS.format(port=1).replace('metrics =', 'http = ["127.0.0.1:0"]\nmetrics =')
    with WebPool(bench.binaries, sections=sections) as pool:
        port = pool.port(r"http=\[")
        page = pool.port("metrics=")
        long = b"GET / HTTP/1.1\r\nHost: " + NAME.encode() + b"\r\nX: " + b"y" * (64 << 10)
        variants = [
            ("the plain port: heads without end, 3,000 connections", requests(port, long, 3000, reads=True)),
            ("the plain port: byte by byte, 3,000 connections", requests(port, long, 3000, dribble=True, pause=0.2)),
            ("the page of metrics: heads without end, 3,000 connections", requests(page, long, 3000, reads=True)),
        ]
        for title, attack in bench.choose(variants, 1):
            yield trial(bench, pool, title, attack)


NODE = """
[node]
listen = ["127.0.0.1:0"]
certificate = "this/node.pem"
key = "this/node.key"
ca = "this/ca.pem"

[[peer]]
name = "other"
"""


class Node(Pool):
    def softhsm_member(self, label):
        line = super().softhsm_member(label)
        self.hsmux("node ca init")
        self.hsmux("node enroll this")
        return line


def on_the_node(bench):
    with Node(bench.binaries, sections=NODE) as pool:
        port = pool.port("addresses=")
        hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + bytes(16000)
        variants = [
            ("a node: half a ClientHello of 16 KiB, 4,000 connections", requests(port, hello, 4000)),
            ("a node: garbage, as often as it is taken", requests(port, b"GET / HTTP/1.1\r\n\r\n" * 100, 100, reads=True)),
        ]
        for title, attack in bench.choose(variants, 1):
            yield trial(bench, pool, title, attack)


def trial(bench, pool, title, attack):
    done = observe(pool, title, signer(pool), Attackers(attack, uid=ANOTHER), bench.seconds)
    keeps_memory(done, MOST_MB)
    keeps_rate(done, bench.share(RATE))
    fails_nothing(done)
    return done


def trials(bench):
    for each in (on_the_broker, on_the_plain_port, on_the_node):
        yield from each(bench)
