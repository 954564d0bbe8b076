"""What people do who only want to work; each function makes a step that is repeated."""

import http.client
import socket
import ssl

from . import frames
from .pool import POOL_PIN


def signer(pool, label="ec", direct=False):
    """Signs with a key of the pool, through the daemon or a worker itself, one signature after the other."""
    path = pool.socket

    def make():
        connection = frames.Connection(path)
        connection.call(frames.login(POOL_PIN.encode()))
        key = connection.find(frames.PRIVATE_KEY, label)
        call = frames.frame(frames.execute(frames.use(frames.SIGN, key, frames.plain(frames.CKM_ECDSA), b"\7" * 32)))
        if direct:
            frames.go_direct(connection, key, call)

        def step():
            _, (results,) = connection.ask(call)
            frames.outcome(results[0])

        return step

    return make


def newcomer(pool):
    """Comes with a new connection each time, and reads the catalogue."""
    path = pool.socket

    def make():
        def step():
            connection = frames.Connection(path)
            try:
                connection.call(frames.CATALOGUE)
            finally:
                connection.close()

        return step

    return make


def context(**certificate):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if certificate:
        made.load_cert_chain(**certificate)
    return made


def handshaker(port, name, head=b"", address="127.0.0.1", timeout=60.0):
    """A full TLS handshake with the gateway, from this address, after a PROXY header where there is one."""

    def make():
        tls = context()

        def step():
            with socket.create_connection(("127.0.0.1", port), timeout, (address, 0)) as stream:
                stream.sendall(head)
                with tls.wrap_socket(stream, server_hostname=name):
                    pass

        return step

    return make


def browser(port, name, path):
    """A request over a connection that stays."""

    def make():
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context())
        connection.sock = context().wrap_socket(socket.create_connection(("127.0.0.1", port), 60), server_hostname=name)

        def step():
            connection.request("GET", path, headers={"Host": name})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise ConnectionError(answer.status)

        return step

    return make
