"""1.5: one local user with many connections beside another with one."""

import select
import time

from common import frames, token_time
from common.honest import newcomer, signer
from common.measure import fails_nothing, keeps_memory, keeps_rate
from common.pool import POOL_PIN

NUMBER = "1.5"
# Of two users each has half of the token's time, or all of it if the other needs no token. The rest is for a machine
# that is busy otherwise.
HALF, WHOLE = 0.4, 0.6
SERVICE_US = 20_000
# A worker serves programs itself only if its token takes less than a millisecond.
DIRECT_US = 500
MOST_MB = 200
CONNECTIONS = 60


def crowd(path, make_call, connections=CONNECTIONS, login=True, direct=False):
    """So many connections ask for the same again as soon as they are answered."""

    def attack(_, stop, begun):
        opened, poll, call = {}, select.poll(), None
        for _ in range(connections):
            connection = frames.Connection(path)
            if login:
                connection.call(frames.login(POOL_PIN.encode()))
            call = call or make_call(connection)
            if direct:
                frames.go_direct(connection, connection.find(frames.PRIVATE_KEY, "ec"), call)
            connection.socket.setblocking(False)
            connection.rest, connection.wanted = call, None
            opened[connection.socket.fileno()] = connection
            poll.register(connection.socket, select.POLLIN | select.POLLOUT)
        begun()
        while not stop.is_set() and opened:
            for number, ready in poll.poll(100):
                if not goes_on(opened[number], call):
                    poll.unregister(number)
                    opened.pop(number).close()
                    continue
                rest = opened[number].rest
                poll.modify(number, select.POLLIN | (select.POLLOUT if rest else 0))

    def goes_on(connection, call):
        try:
            if connection.rest:
                connection.rest = connection.rest[connection.socket.send(connection.rest):]
                return True
            said = connection.socket.recv(1 << 20)
            if connection.wanted is None:
                connection.wanted = 4 + int.from_bytes(said[:4], "little")
            connection.wanted -= len(said)
            if connection.wanted <= 0:
                connection.wanted, connection.rest = None, call
            return bool(said)
        except BlockingIOError:
            return True
        except OSError:
            return False

    return attack


def comers_and_goers(path):
    """Connects, greets and goes, 500 times a second at most."""

    def attack(_, stop, begun):
        begun()
        while not stop.is_set():
            try:
                frames.Connection(path, timeout=5).close()
            except (OSError, frames.Refused):
                pass
            time.sleep(0.002)

    return attack


def crowd_of_direct(path):
    """The same over connections that workers serve themselves."""
    return crowd(path, signature, direct=True)


def holders(path, count):
    """Connections that greet, and then stay."""

    def attack(_, stop, begun):
        opened = []
        while not stop.is_set():
            while len(opened) < count and not stop.is_set():
                try:
                    opened.append(frames.Connection(path, timeout=5))
                except (OSError, frames.Refused):
                    break
            begun()
            stop.wait(0.05)

    return attack


def wrong_pins(path):
    """Connections that try PINs; each costs the daemon a slow hash."""
    return crowd(path, lambda _: frames.frame(frames.login(b"not the PIN")), 60, login=False)


def signature(connection):
    key = connection.find(frames.PRIVATE_KEY, "ec")
    return frames.frame(frames.execute(frames.use(frames.SIGN, key, frames.plain(frames.CKM_ECDSA), b"\1" * 32)))


def batch(connection):
    key = connection.find(frames.PRIVATE_KEY, "ec")
    one = frames.use(frames.SIGN, key, frames.plain(frames.CKM_ECDSA), b"\1" * 32)
    return frames.frame(frames.execute(*[one] * 1024))


def long_random(_):
    return frames.frame(frames.execute(frames.random(1 << 20)))


def long_signature(connection):
    """A signature of data that is far too long: costs nothing on a token, and all the way to it."""
    key = connection.find(frames.PRIVATE_KEY, "ec")
    return frames.frame(frames.execute(frames.use(frames.SIGN, key, frames.plain(frames.CKM_ECDSA), bytes(4 << 20))))


def direct_signer(pool):
    return signer(pool, direct=True)


def trials(bench):
    """The title; the attack, the honest user, the token's time and what is left of the rate."""
    direct = "60 connections that sign at the worker itself"
    variants = [
        ("60 connections that sign", lambda path: crowd(path, signature), signer, SERVICE_US, HALF),
        (direct, crowd_of_direct, signer, DIRECT_US, HALF),
        (f"{direct}, beside another such", crowd_of_direct, direct_signer, DIRECT_US, HALF),
        ("9,000 connections that only stay", lambda path: holders(path, 9000), newcomer, SERVICE_US, WHOLE),
        ("60 connections that sign 1,024 times in each call", lambda path: crowd(path, batch), signer, SERVICE_US, HALF),
        ("60 connections that ask for 1 MiB of random bytes", lambda path: crowd(path, long_random), signer, SERVICE_US,
         HALF),
        ("60 connections that send 4 MiB to be signed", lambda path: crowd(path, long_signature), signer, SERVICE_US,
         HALF),
        ("60 connections that read the catalogue", lambda path: crowd(path, lambda _: frames.frame(frames.CATALOGUE)),
         signer, SERVICE_US, WHOLE),
        ("60 connections that try wrong PINs", wrong_pins, signer, SERVICE_US, WHOLE),
        ("500 connections a second that greet and go", comers_and_goers, signer, SERVICE_US, WHOLE),
    ]
    for title, attack, honest, service_us, rate in bench.choose(variants, 1):
        done = token_time.trial(bench, title, honest, attack, service_us)
        keeps_rate(done, bench.share(rate))
        keeps_memory(done, MOST_MB)
        fails_nothing(done)
        yield done
