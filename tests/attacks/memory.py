"""1.3: memory before login, and for calls with too many operations. Only attackers of the latter have a PIN."""

import select
import struct
import time
from functools import partial

from common import frames, token_time
from common.honest import signer
from common.measure import Memory, Trial, fails_nothing, keeps_memory, keeps_rate
from common.pool import POOL_PIN, Pool

NUMBER = "1.3"
MOST_MB = 200
RATE = 0.9
# The most operations in one call: MOST in crates/daemon/src/application_connection.rs.
OPERATIONS = 64
# How the daemon refuses more.
TOO_MANY, CLOSED = "operations in one call", "the daemon has closed the connection"


def many_random(length, count=1024):
    return frames.frame(frames.execute(*[frames.random(length)] * count))


def long_list(bytes_wanted, item):
    """Execute with as many copies of one encoded item as fit."""
    count = (bytes_wanted - 16) // len(item)
    head = b"\x82\x00\x81\x9a" + struct.pack(">I", count)
    body = head + item * count
    return struct.pack("<I", len(body)) + body


def flood(path, frame, connections, then, has_pin=False):
    """So many connections send a frame. Then they wait and read nothing ("hold"), read a little at a time and ask
    again ("read"), or break off and come back, 200 times a second ("again")."""

    def attack(_, stop, begun):
        opened, poll = {}, select.poll()
        while not stop.is_set():
            while len(opened) < connections and not stop.is_set():
                try:
                    connection = connect(path, has_pin, timeout=5)
                except (OSError, frames.Refused):
                    time.sleep(0.05)
                    break
                connection.socket.setblocking(False)
                connection.rest = frame
                opened[connection.socket.fileno()] = connection
                poll.register(connection.socket, select.POLLOUT)
            begun()
            for number, _ in poll.poll(20):
                connection = opened[number]
                if goes_on(connection):
                    more = select.POLLOUT if connection.rest else select.POLLIN if then == "read" else 0
                    poll.modify(number, more)
                else:
                    poll.unregister(number)
                    opened.pop(number).close()
            if then == "again":
                time.sleep(0.005)
            elif then == "read":
                time.sleep(0.01)

    def goes_on(connection):
        try:
            if connection.rest:
                sent = connection.socket.send(memoryview(connection.rest)[:1 << 18])
                connection.rest = connection.rest[sent:]
                return connection.rest or then != "again"
            said = connection.socket.recv(1 << 12)
            # An answer that ends here is short of a page.
            if said and len(said) < 1 << 12:
                connection.rest = frame
            return said
        except BlockingIOError:
            return True
        except OSError:
            return False

    return attack


def connect(path, has_pin, timeout=60.0):
    connection = frames.Connection(path, timeout=timeout)
    if has_pin:
        connection.call(frames.login(POOL_PIN.encode()))
    return connection


def keeper(path, size):
    """A program without login that makes session objects, and keeps them."""
    template = [[0, bytes(8)], [1, b"\0"], [2, b"\0"], [0x11, bytes(size)]]  # CKO_DATA, not CKA_TOKEN, not CKA_PRIVATE

    def attack(_, stop, begun):
        connections = []
        while not stop.is_set():
            if len(connections) < 100:
                connections.append(frames.Connection(path))
            for connection in connections:
                try:
                    connection.execute([7, [template, None]])
                except frames.Refused:
                    time.sleep(0.01)
            begun()
        for connection in connections:
            connection.close()

    return attack


def trials(bench):
    item = b"\x82\x82\x01\x81\x01\x01"  # [Random [1], 1 us]
    nested = b"\x81" * (bench.pick(1 << 16, 15 << 20))
    mib, slow = many_random(1 << 20), many_random(16 << 10)
    part = struct.pack("<I", 60 << 10) + b"\x82\x00" * 30_000
    variants = [
        ("1,024 requests for 1 MiB of random bytes in 14 KiB, 100 connections, unread", mib, 100, "hold"),
        ("the same on one connection", mib, 1, "hold"),
        ("the same on 100, broken off and begun again", mib, 100, "again"),
        ("1,024 requests for 16 KiB on 100 connections, answers read slowly", slow, 100, "read"),
        ("a frame of 16 MiB with 2.7 million items, 100 connections", long_list(16 << 20, item), 100, "hold"),
        ("the same, 4 connections, again and again", long_list(16 << 20, item), 4, "again"),
        ("arrays within arrays, 100 connections", struct.pack("<I", len(nested)) + nested, 100, "again"),
        ("the catalogue, unread, 2,000 connections", frames.frame(frames.CATALOGUE), 2000, "hold"),
        ("frames of 60 KiB that are never whole, 1,000 connections", part, 1000, "hold"),
    ]
    for title, frame, connections, then in bench.choose(variants, 1):
        yield trial(bench, title, partial(flood, frame=frame, connections=connections, then=then))
    too_many = [
        ("65 operations in each call, 60 connections with the PIN", many_random(1 << 20, OPERATIONS + 1), 60, "read"),
        ("2.7 million operations in each call, 4 connections with the PIN", long_list(16 << 20, item), 4, "read"),
    ]
    for title, frame, connections, then in bench.choose(too_many, 1):
        with_pin = partial(flood, frame=frame, connections=connections, then=then, has_pin=True)
        yield trial(bench, title, with_pin)
    for title, longest in bench.choose([("answers to calls with too many operations", long_list(16 << 20, item))], 1):
        yield refusals(bench, title, longest)
    for title, size in bench.choose([("data objects of 1 MiB without login", 1 << 20), ("data objects of 1 KiB", 1 << 10)], 0):
        yield trial(bench, title, partial(keeper, size=size))


def refusals(bench, title, longest):
    """The daemon answers calls with too many operations by an error, or closes the connection."""
    done = Trial(title)
    calls = [(f"{count:,}", many_random(1, count), pin) for count in (OPERATIONS + 1, 1024) for pin in (False, True)]
    with Pool(bench.binaries) as pool:
        memory = Memory(pool)
        for count, call, has_pin in [*calls, ("2.7 million", longest, True)]:
            said = error_of(pool, call, has_pin)
            who = "with the PIN" if has_pin else "before login"
            done.check(f"{count} operations {who} are refused", said == CLOSED or TOO_MANY in said, said)
        said = error_of(pool, many_random(1, OPERATIONS), has_pin=True)
        done.check(f"{OPERATIONS} operations with the PIN are carried out", said == "", said)
        memory.ended = True
        daemon, _ = memory.take()
        done.check(f"the daemon stays under {MOST_MB} MB", daemon < MOST_MB, f"{daemon:.0f} MB")
        done.check("the daemon is alive", pool.alive())
    return done


def error_of(pool, call, has_pin):
    """How the daemon refuses a call; empty if it does not."""
    connection = connect(pool.socket, has_pin)
    try:
        connection.ask(call)
        return ""
    except frames.Refused as error:
        return str(error)
    except ConnectionError:
        return CLOSED
    finally:
        connection.close()


def trial(bench, title, attack):
    done = token_time.trial(bench, title, signer, attack)
    keeps_memory(done, MOST_MB)
    keeps_rate(done, bench.share(RATE))
    fails_nothing(done)
    return done
