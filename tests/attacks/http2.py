"""1.8: clients of HTTP/2 that ask for everything and take nothing."""

import select
import ssl
import struct
import time

from common import http2
from common.actors import ANOTHER, Attackers
from common.honest import browser
from common.measure import fails_nothing, keeps_memory, keeps_rate, observe
from common.pool import Pool
from common.web import Backend, certify

NUMBER = "1.8"
NAME = "a.example"
MOST_MB = 250
RATE = 0.3

SECTIONS = """
[gateway]
listen = ["127.0.0.1:0"]
metrics = "127.0.0.1:0"

[[site]]
names = ["a.example"]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
root = "www"

[[site]]
names = ["b.example"]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
backend = "http://127.0.0.1:{port}"
"""


class WebPool(Pool):
    """A gateway with files of three lengths, and a site with a server behind."""

    def softhsm_member(self, label):
        line = super().softhsm_member(label)
        certify(self, "a.example", "b.example")
        www = self.path("www")
        www.mkdir()
        www.chmod(0o755)
        for name, length in (("short", 1 << 10), ("middle", 60 << 10), ("long", 8 << 20)):
            (www / name).write_bytes(b"x" * length)
        return line


def stalled(port, name, path, connections, streams, fields=()):
    """Many streams on each connection, with a window that takes nothing."""
    requests = b"".join(http2.request(1 + 2 * number, name, path, fields) for number in range(streams))

    def attack(_, stop, begun):
        opened = []
        while not stop.is_set():
            while len(opened) < connections and not stop.is_set():
                try:
                    stream = http2.connect(port, name, window=0)
                    stream.sendall(requests)
                    stream.setblocking(False)
                    opened.append(stream)
                except OSError:
                    time.sleep(0.05)
                    break
            begun()
            opened = [stream for stream in opened if takes(stream)]
            time.sleep(0.05)

    return attack


def takes(stream):
    """Reads heads and whatever else is not held back by the window."""
    try:
        return bool(stream.recv(1 << 16))
    except (ssl.SSLWantReadError, BlockingIOError):
        return True
    except OSError:
        return False


def flood(port, name, frames, connections):
    """The same frames again and again; what is answered is read."""

    def attack(_, stop, begun):
        opened, poll = {}, select.poll()
        while not stop.is_set():
            while len(opened) < connections and not stop.is_set():
                try:
                    stream = http2.connect(port, name)
                except OSError:
                    time.sleep(0.05)
                    break
                stream.setblocking(False)
                opened[stream.fileno()] = stream
                poll.register(stream, select.POLLIN | select.POLLOUT)
            begun()
            for number, _ in poll.poll(50):
                stream = opened[number]
                try:
                    stream.send(frames)
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    pass
                except OSError:
                    close(opened, poll, number)
                    continue
                if not takes(stream):
                    close(opened, poll, number)
            time.sleep(0.001)

    def close(opened, poll, number):
        poll.unregister(number)
        opened.pop(number).close()

    return attack


def trials(bench):
    backend = Backend(b"x" * 100_000)
    connections = bench.pick(50, 200)
    ping = http2.frame(http2.PING, 0, 0, b"pingpong") * 400
    settings = http2.settings(window=65535) * 400
    window = http2.frame(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 400
    empty = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.block(
        [(":method", "POST"), (":scheme", "https"), (":path", "/short"), (":authority", NAME)]))
    empty += http2.frame(http2.DATA, 0, 1) * 400
    resets = b"".join(http2.request(1 + 2 * number, NAME, "/short")
                      + http2.frame(http2.RST_STREAM, 0, 1 + 2 * number, b"\0\0\0\x08") for number in range(200))
    variants = [
        (f"{connections} connections of 256 streams for a file of 60 KiB, window closed",
         lambda port: stalled(port, NAME, "/middle", connections, 256)),
        ("PING, 20 connections, answers read", lambda port: flood(port, NAME, ping, 20)),
        (f"{connections} connections of 256 streams for a file of 8 MiB, window closed",
         lambda port: stalled(port, NAME, "/long", connections, 256)),
        (f"{connections} connections of 256 streams to a server behind, window closed",
         lambda port: stalled(port, "b.example", "/", connections, 256)),
        (f"{connections} connections of 256 streams with 8 KiB of fields each",
         lambda port: stalled(port, NAME, "/short", connections, 256, [("x-long", "y" * 8000)])),
        ("SETTINGS, 20 connections, answers read", lambda port: flood(port, NAME, settings, 20)),
        ("WINDOW_UPDATE of 1, 20 connections", lambda port: flood(port, NAME, window, 20)),
        ("empty DATA, 20 connections", lambda port: flood(port, NAME, empty, 20)),
        ("streams that are reset at once, 20 connections", lambda port: flood(port, NAME, resets, 20)),
    ]
    try:
        for title, make in bench.choose(variants, 2):
            yield trial(bench, title, make, backend.port)
    finally:
        backend.close()


def trial(bench, title, make, behind):
    with WebPool(bench.binaries, sections=SECTIONS.format(port=behind)) as pool:
        port = pool.port("the gateway serves.*?addresses=")
        attackers = Attackers(make(port), uid=ANOTHER)
        done = observe(pool, title, browser(port, NAME, "/short"), attackers, bench.seconds)
        keeps_memory(done, MOST_MB)
        keeps_rate(done, bench.share(RATE))
        fails_nothing(done)
        return done
