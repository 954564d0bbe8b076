"""1.1: requests that lie about their host, their sender and their end."""

import socket
import ssl

from common import http2
from common.honest import browser, context
from common.measure import Deeds, fails_nothing, keeps_memory, observe
from common.pool import Pool
from common.web import Backend, authority, certify, fields

NUMBER = "1.1"
OWN, OTHER = "a.example", "b.example"
MOST_MB = 200

SECTIONS = """
[gateway]
listen = ["127.0.0.1:0"]
metrics = "127.0.0.1:0"

[[site]]
names = ["a.example"]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
backend = "http://127.0.0.1:{port}"

[[site]]
names = ["b.example"]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
client_ca = "clients.pem"
backend = "http://127.0.0.1:{port}"

[[site]]
names = ["files.example"]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
root = "www"
{catch_all}
"""

CATCH_ALL = """
[[site]]
certificates = ["ec.pem"]
keys = ["pkcs11:object=ec"]
backend = "http://127.0.0.1:{port}"
"""

# The Host lines of a request on a connection for a.example.
HOSTS = [
    b"Host: b.example", b"Host: b.example:\xff", b"Host: b.example:443:", b"Host: b.example:abc", b"Host: b.example:",
    b"Host: b.example.", b"Host: B.EXAMPLE:443", b"Host: b.example:99999", b"Host: b.example:+443",
    b"Host: b.example:0x1bb", b"Host: b.example:443 ", b"Host: a.example\r\nHost: b.example",
    b"Host: b.example\r\nHost: a.example", b"Host: a.example, b.example", b"Host: a.example@b.example",
    b"Host: b.example/", b"Host: b.example#a.example", b"Host: b.example\\a.example", b"Host: b.example\x00",
    b"Host: b.example\xc2\xa0", b"Host: [::1]:443", b"Host: ", b"", b"Host: b.example\r\n Host: a.example",
    b"X: y\r\nHost : b.example", b"Host:\tb.example", b"Host: b%2eexample", b"Host: 127.0.0.1",
    b"Host: a.example:80@b.example", b"Host: a.example\r\nX-Forwarded-Host: b.example",
    b"Host: a.example\r\nX_Forwarded_Host: b.example", b"Host: a.example\r\nX-Host: b.example\r\nForwarded: host=b.example",
]
# The first lines of requests whose Host is a.example.
LINES = [
    b"GET http://b.example/ HTTP/1.1", b"GET https://b.example/ HTTP/1.1", b"GET https://b.example:443/ HTTP/1.1",
    b"GET https://a.example@b.example/ HTTP/1.1", b"GET //b.example/ HTTP/1.1", b"CONNECT b.example:443 HTTP/1.1",
    b"GET http://b.example:\xff/ HTTP/1.1", b"OPTIONS * HTTP/1.1",
]
# What a client may not say of itself.
SENDERS = [
    "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Forwarded-Scheme",
    "X-Forwarded-Ssl", "X-Forwarded-Server", "X-Forwarded-Client-Cert", "X-Forwarded-Anything", "Forwarded",
    "X-Real-IP", "True-Client-IP", "X_Forwarded_For", "X-Forwarded_For", "x_real_ip", "True_Client_IP",
    "X-Client-Cert", "Client-Cert", "Client-Cert-Chain", "X-SSL-Client-Cert", "X-SSL-Client-S-DN",
    "SSL_CLIENT_CERT", "Any_Name",
]
HOST = b"Host: a.example\r\n"
UPGRADES = [b"h2c", b"TLS/1.0", b"other", b"websocket, other", b"other, websocket", b"WebSocket2"]
CHUNKS = {
    "a chunk without a number": b"xyz\r\nhello\r\n0\r\n\r\n",
    "a chunk of a negative length": b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than memory": b"ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk that ends elsewhere": b"5\r\nhello, world\r\n0\r\n\r\n",
    "a chunk with a bare line feed": b"5\nhello\n0\n\n",
}
ENDS = {
    "both lengths": HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: b.example\r\n\r\n",
    "two lengths": HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a coding that is none": HOST + b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello",
    "chunked twice": HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: b.example\r\n\r\n",
    "a length with a sign": HOST + b"Content-Length: +5\r\n\r\nhello",
    "a coding after a tab": HOST + b"Transfer-Encoding:\tchunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: b.example\r\n\r\n",
}


class WebPool(Pool):
    """Two sites of one server, of which one asks for certificates; and a folder."""

    def softhsm_member(self, label):
        line = super().softhsm_member(label)
        certify(self, OWN, OTHER, "files.example")
        authority(self)
        for name in ("www/.well-known", "www/.git", "www/in/.hidden"):
            self.path(name).mkdir(parents=True)
        for name in (".well-known/ok", ".git/config", ".env", "in/.hidden/file", "in/.secret", ".well-known/.secret", "page"):
            self.path("www").joinpath(name).write_text("content")
        self.run("chmod", "-R", "a+rX", self.path("www"))
        return line


def say(port, name, words, wait=5.0):
    """What is answered over a new connection for this name; all of it, or what came until then."""
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        with context().wrap_socket(plain, server_hostname=name) as stream:
            stream.sendall(words)
            stream.settimeout(wait)
            said = b""
            try:
                while b"\r\n\r\n" not in said:
                    part = stream.recv(65536)
                    if not part:
                        break
                    said += part
            except OSError:
                pass
            return said


def status(said):
    return said.split(b"\r\n", 1)[0].decode(errors="replace") or "closed"


def request(line=b"GET / HTTP/1.1", fields_=HOST):
    return line + b"\r\n" + fields_ + (b"\r\n" if fields_ and not fields_.endswith(b"\r\n") else b"") + b"Connection: close\r\n\r\n"


class Attack:
    """Sends each variant, and looks at what the server behind has heard."""

    def __init__(self, port, backend, name):
        self.port, self.backend, self.name, self.found = port, backend, name, []

    def check(self, what, good, said=""):
        self.found.append((what, good, said))

    def all(self):
        for line in HOSTS:
            self.about_hosts(line, request(fields_=line))
        for line in LINES:
            self.about_hosts(line, request(line))
        self.about_hosts(b"HTTP/1.0 without Host", request(b"GET / HTTP/1.0", b""))
        self.second_request()
        self.over_http2()
        self.smuggled_over_http2()
        if self.name != OWN:
            return
        self.senders()
        self.upgrades()
        self.ends()
        self.folder()

    def heard(self):
        """The hosts that the server was asked for, of those that this connection is not for."""
        hosts = [fields(head, b"host") + fields(head, b"x-forwarded-host") for head in self.backend.take()]
        return [host for host in hosts if not all(map(self.is_good, host)) or len(set(host)) != 1]

    def is_good(self, host):
        """On a connection for a site with a name that name alone; else whatever is no site's and no address behind."""
        if self.name == OWN:
            return host == OWN.encode()
        known = b"a.example", b"b.example", b"b%2eexample", b":%d" % self.backend.port
        return not any(name in host.lower() for name in known)

    def about_hosts(self, what, words):
        said = say(self.port, self.name, words)
        heard = self.heard()
        self.check(f"{what!r}: no host of another site is passed on", not heard, f"{status(said)} {heard or ''}")

    def over_http2(self):
        other, odd = [("host", OTHER)], [("host", b"b.example:\xff")]
        for what, host, more in (
            ("`host` without :authority", None, other),
            ("`host` with an odd port, without :authority", None, odd),
            ("`host` beside :authority", self.name, other),
            ("two :authority", self.name, [(":authority", OTHER)]),
            ("two `host`", None, [("host", self.name), ("host", OTHER)]),
            (":authority b.example", OTHER, []),
            (":authority with a port that is none", b"b.example:\xff", []),
            (":authority with two colons", "b.example:443:", []),
            (":authority with a user", "a.example@b.example", []),
            ("no host at all", None, []),
        ):
            try:
                with http2.connect(self.port, self.name) as stream:
                    stream.settimeout(5)
                    stream.sendall(http2.request(1, host, "/", more))
                    said = http2.answer(stream)
            except OSError:
                said = None
            heard = self.heard()
            self.check(f"HTTP/2, {what}: no host of another site is passed on", not heard, f"{said} {heard or ''}")

    def second_request(self):
        """The first request of a connection is good, and the next ones are not."""
        first = b"GET /first HTTP/1.1\r\nHost: " + self.name.encode() + b"\r\n\r\n"
        for line in (b"Host: b.example", b"Host: b.example:\xff", b""):
            said = say(self.port, self.name, first + request(fields_=line))
            self.check(f"a second request with {line!r}: no host of another site is passed on", not self.heard(), status(said))

    def smuggled_over_http2(self):
        """What is one request over HTTP/2, and could be two as HTTP/1.1 for the server behind."""
        second = b"GET /smuggled HTTP/1.1\r\nHost: b.example\r\n\r\n"
        usual = [(":method", "POST"), (":scheme", "https"), (":authority", self.name)]
        path = (":path", "/")
        for what, fields_, body in (
            ("a transfer coding", [*usual, path, ("transfer-encoding", "chunked")], b"0\r\n\r\n" + second),
            ("a length that is too short", [*usual, path, ("content-length", "0")], second),
            ("a value with line feeds", [*usual, path, ("x", b"y\r\n\r\n" + second)], b""),
            ("a name with line feeds", [*usual, path, (b"x: y\r\n\r\n" + second + b"z", "y")], b""),
            ("a name with a colon", [*usual, path, (b"host: b.example\r\nx", "y")], b""),
            ("a path with line feeds", [*usual, (":path", b"/ HTTP/1.1\r\nHost: a.example\r\n\r\n" + second)], b""),
            ("a path with a space", [*usual, (":path", b"/ HTTP/1.1\tX: y")], b""),
            ("an absolute path", [*usual, (":path", "http://b.example/smuggled")], b""),
            ("a method with line feeds", [(":method", b"GET / HTTP/1.1\r\n\r\n" + second), *usual[1:], path], b""),
            ("a scheme with a host", [usual[0], (":scheme", b"https://b.example/smuggled"), usual[2], path], b""),
            ("a field of one connection", [*usual, path, ("connection", "host"), ("upgrade", "h2c")], b""),
            ("CONNECT with another protocol", [(":method", "CONNECT"), (":protocol", "other"), *usual[1:], path], b""),
            ("CONNECT to another host", [(":method", "CONNECT"), (":authority", "b.example:443")], b""),
        ):
            try:
                with http2.connect(self.port, self.name) as stream:
                    stream.settimeout(3)
                    stream.sendall(http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.block(fields_))
                                   + http2.frame(http2.DATA, http2.END_STREAM, 1, body))
                    said = http2.answer(stream)
            except OSError:
                said = None
            heads = list(self.backend.heads)
            smuggled = [head for head in heads if b"/smuggled" in head or b"upgrade" in head.lower()]
            heard = self.heard()
            self.check(f"HTTP/2, {what}: nothing else is passed on", not smuggled and not heard, f"{said} {heads or ''}")

    def senders(self):
        for name in SENDERS:
            say(self.port, OWN, request(fields_=HOST + name.encode() + b": 6.6.6.6\r\n"))
            heads = self.backend.take()
            lied = any(b"6.6.6.6" in head for head in heads)
            self.check(f"{name} of a client is not passed on", not lied)

    def upgrades(self):
        for name in UPGRADES:
            lines = HOST + b"Connection: upgrade\r\nUpgrade: " + name + b"\r\n"
            said = say(self.port, OWN, b"GET / HTTP/1.1\r\n" + lines + b"\r\n")
            self.backend.take()
            self.check(f"Upgrade: {name.decode()} is not tunnelled", b"tunnelled" not in said and b" 101 " not in said,
                       status(said))

    def ends(self):
        for what, body in CHUNKS.items():
            said = say(self.port, OWN, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + body, 3)
            self.backend.take()
            self.check(f"{what} is a 400", said.startswith(b"HTTP/1.1 400"), status(said))
        for what, lines in ENDS.items():
            said = say(self.port, OWN, b"POST / HTTP/1.1\r\n" + lines, 3)
            heads = self.backend.take()
            self.check(f"{what}: no second request is passed on", not any(b"/smuggled" in head for head in heads),
                       status(said))

    def folder(self):
        host = b"Host: files.example\r\n"
        for path, wanted in (("/.git/config", 404), ("/.env", 404), ("/in/.secret", 404), ("/in/.hidden/file", 404),
                             ("/%2egit/config", 404), ("/%2Eenv", 404), ("/.well-known/../.env", 404), ("/./.env", 404),
                             ("/.well-known/.secret", 404), ("/.well-known/ok", 200), ("/page", 200),
                             ("/" + "x" * 5000, 404), ("/" + "x/" * 3000, 404), ("/" + "x" * 300, 404)):
            said = say(self.port, "files.example", request(b"GET " + path.encode() + b" HTTP/1.1", host))
            shown = path if len(path) < 40 else f"a path of {len(path)} bytes"
            self.check(f"{shown} is a {wanted}", said.startswith(b"HTTP/1.1 %d" % wanted), status(said))


def trials(bench):
    variants = [
        ("a connection for a.example, which wants b.example of the same server", "", OWN),
        ("the same beside a site for all other names", CATCH_ALL, OWN),
        ("a connection for the site for all other names", CATCH_ALL, "c.example"),
    ]
    for title, catch_all, name in bench.choose(variants, 3):
        backend = Backend()
        sections = SECTIONS.format(port=backend.port, catch_all=catch_all.format(port=backend.port))
        try:
            with WebPool(bench.binaries, sections=sections) as pool:
                port = pool.port("the gateway serves.*?addresses=")
                attack = Attack(port, backend, name)
                # The honest client asks for files: the server behind hears of the attack alone.
                trial = observe(pool, title, browser(port, "files.example", "/page"), Deeds(attack.all), bench.seconds)
                for check in attack.found:
                    trial.check(*check)
                keeps_memory(trial, MOST_MB)
                fails_nothing(trial)
                yield trial
        finally:
            backend.close()
