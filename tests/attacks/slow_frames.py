"""1.4: frames that come byte by byte, as if they had a secret, on a few connections."""

import socket
import struct
import time

from common import frames, token_time
from common.honest import signer
from common.measure import Trial, fails_nothing, keeps_memory, keeps_rate
from common.pool import Pool

NUMBER = "1.4"
RATE = 0.9
MOST_MB = 200
# The longest that one frame may take, with room for a busy machine.
FRAME_S = 60


def begin(kind, length, argument):
    """The begin of a frame with one argument, which goes on as long as the sender likes."""
    body = bytes([0x82, kind, 0x81, 0x5A]) + struct.pack(">I", argument)
    return struct.pack("<I", length) + body


def trickle(path, head, fill, connections, pause):
    """Each connection sends the head, quickly so many bytes more, and then a byte at a time."""

    def attack(_, stop, begun):
        opened = []
        while not stop.is_set():
            while len(opened) < connections and not stop.is_set():
                connection = open_one(stop)
                if connection is None:
                    break
                opened.append(connection)
            begun()
            opened = [connection for connection in opened if one_byte(connection)]
            time.sleep(pause)

    def open_one(stop):
        try:
            connection = frames.Connection(path, timeout=10)
            connection.socket.sendall(head)
            for _ in range(fill >> 16):
                if stop.is_set():
                    return None
                connection.socket.sendall(bytes(1 << 16))
            connection.socket.setblocking(False)
            return connection
        except (OSError, frames.Refused):
            time.sleep(0.1)
            return None

    def one_byte(connection):
        try:
            connection.socket.send(b"\0")
            return True
        except BlockingIOError:
            return True
        except OSError:
            connection.close()
            return False

    return attack


def trials(bench):
    login, start, longest = 4, 7, 16 << 20
    variants = [
        ("5 logins of 16 MiB, a byte each 5 ms after 8 MiB", begin(login, longest, longest - 16), 8 << 20, 5, 0.005),
        ("the same as a worker's start", begin(start, longest, longest - 16), 8 << 20, 5, 0.005),
        ("the same as random requests", begin(0, longest, longest - 16), 8 << 20, 5, 0.005),
        ("60 logins of 3 KiB, a byte each 5 ms", begin(login, 3000, 2990), 0, 60, 0.005),
    ]
    for title, head, fill, connections, pause in bench.choose(variants, 1):
        yield trial(bench, title, (head, fill, connections, pause))
    if not bench.quick:
        yield longest_frame(bench)


def trial(bench, title, words):
    done = token_time.trial(bench, title, signer, lambda path: trickle(path, *words))
    keeps_rate(done, bench.share(RATE))
    keeps_memory(done, MOST_MB)
    fails_nothing(done)
    return done


def longest_frame(bench):
    """How long a peer may take for one frame that it never stands still in."""
    trial = Trial("a login of 3 KiB and a call of 1 MiB, a byte each second: how long they last")
    with Pool(bench.binaries) as pool:
        opened = {}
        for what, head in (("a login", begin(4, 3000, 2990)), ("a call", begin(0, 1 << 20, (1 << 20) - 16))):
            connection = frames.Connection(pool.socket)
            connection.socket.sendall(head)
            opened[what] = connection
        begun, ended = time.monotonic(), {}
        while opened.keys() - ended.keys() and time.monotonic() - begun < FRAME_S:
            for what, connection in opened.items():
                if what not in ended and not lives(connection):
                    ended[what] = time.monotonic() - begun
            time.sleep(1)
        for what in opened:
            took = f"{ended[what]:.0f} s" if what in ended else "still open"
            trial.check(f"{what} ends within {FRAME_S} s", what in ended, took)
    return trial


def lives(connection):
    try:
        connection.socket.sendall(b"\0")
        connection.socket.settimeout(0.01)
        connection.socket.recv(4096)  # The end, or why it comes.
        return False
    except socket.timeout:
        return True
    except OSError:
        return False
