"""1.7: clients that replay a ClientHello, each time another signature of a slow token."""

import select
import socket
import ssl

from common.actors import ANOTHER, Attackers
from common.honest import handshaker
from common.measure import observe
from common.pool import Pool
from common.web import certify

NUMBER = "1.7"
SERVICE_US = 200_000
TIMES, QUICK_TIMES = 3, 8
NAME = "a.example"

SECTIONS = """
[gateway]
listen = ["127.0.0.1:0"]
metrics = "127.0.0.1:0"
{gateway}

[[site]]
names = ["a.example"]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
root = "www"
"""


class SlowPool(Pool):
    """A gateway whose only token takes its time for each signature."""

    service_us = SERVICE_US

    def softhsm_member(self, label):
        line = super().softhsm_member(label)
        certify(self, NAME)
        self.path("www").mkdir()
        return line


def client_hello(name=NAME):
    """The first bytes of a handshake."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    try:
        tls.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        return out.read()


def replay(port, clients, head=None):
    """So many connections from one address; each begins anew once it has an answer."""
    hello = client_hello()

    def attack(_, stop, begun):
        opened, poll, count = {}, select.poll(), 0
        while not stop.is_set():
            while len(opened) < clients and not stop.is_set():
                count += 1
                try:
                    stream = socket.create_connection(("127.0.0.1", port), 5, ("127.0.0.2", 0))
                    stream.sendall((head(count) if head else b"") + hello)
                except OSError:
                    break
                opened[stream.fileno()] = stream
                poll.register(stream, select.POLLIN)
            begun()
            for number, _ in poll.poll(50):
                poll.unregister(number)
                opened.pop(number).close()

    return attack


def proxied(address, port=1024):
    """A PROXY header (version 2): the client has this address."""
    return (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + socket.inet_aton(address) + socket.inet_aton("192.0.2.1")
            + port.to_bytes(2, "big") + b"\x01\xbb")


def behind_a_proxy(count):
    return proxied("192.0.2.66", 1024 + count % 60000)


def liar(count):
    """An address that nobody had before."""
    return proxied(f"10.{count >> 16 & 255}.{count >> 8 & 255}.{count & 255}")


PROXY = "proxy_protocol = true"
ONE_PROXY = PROXY + '\nproxy_from = ["127.0.0.1"]'


def trials(bench):
    """The title; the clients, their addresses and their headers; lines of [gateway]."""
    variants = [
        ("100 clients of one address", 100, None, ""),
        ("300 clients of one address", 300, None, ""),
        ("1,000 clients of one address", 1000, None, ""),
        ("300 clients of one address, behind a proxy", 300, behind_a_proxy, PROXY),
        ("300 clients that are no proxy, and say so many addresses", 300, liar, ONE_PROXY),
    ]
    for title, clients, head, lines in bench.choose(variants, 1):
        yield trial(bench, title, clients, head, lines)


def trial(bench, title, clients, head, lines):
    with SlowPool(bench.binaries, sections=SECTIONS.format(gateway=lines)) as pool:
        port = pool.port("the gateway serves.*?addresses=")
        honest = handshaker(port, NAME, proxied("192.0.2.7") if head else b"")
        attackers = Attackers(replay(port, clients, head), uid=ANOTHER)
        seconds = max(bench.seconds, bench.pick(4.0, 8.0))
        done = observe(pool, f"{title}, a token of {SERVICE_US // 1000} ms", honest, attackers, seconds, settle=3.0)
        stays_within(done, bench.pick(QUICK_TIMES, TIMES))
        return done


def stays_within(trial, times):
    before, during = trial.phase("before"), trial.phase("during")
    for what, quiet, now in (("median", before.p50, during.p50), ("p99", before.p99, during.p99)):
        trial.check(f"an honest handshake stays within {times} times its quiet {what}", now <= times * quiet,
                    f"{now:.2f} s, quiet {quiet:.2f} s")
    trial.check("no honest handshake fails", during.failed == 0, during.failed or "")
