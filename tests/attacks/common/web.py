"""What the attacks on the gateway need: certificates, sites, and a server behind that says what it was asked."""

import socket
import threading


def authority(pool):
    """A client's authority, `clients.pem`; nobody here has a certificate of it."""
    pool.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3",
             "-subj", "/CN=clients", "-keyout", "clients.key", "-out", "clients.pem")


def certify(pool, *names):
    """`ec.pem` for the pool's key `ec` with these names."""
    listed = ",".join(f"DNS:{name}" for name in names)
    pool.run("openssl", "req", "-x509", "-new", "-key", "ec.key", "-days", "3", "-subj", f"/CN={names[0]}", "-addext",
             f"subjectAltName={listed}", "-out", "ec.pem")


class Backend:
    """A server of HTTP/1.1 on loopback that remembers the head of each request."""

    def __init__(self, body=b"hello"):
        self.heads, self.body = [], body
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        read = b""
        with stream:
            stream.settimeout(60)
            while True:
                try:
                    while b"\r\n\r\n" not in read:
                        part = stream.recv(65536)
                        if not part:
                            return
                        read += part
                    head, _, read = read.partition(b"\r\n\r\n")
                    self.heads.append(head)
                    if b"\nupgrade:" in head.lower():
                        stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
                                       b"Upgrade: other\r\n\r\ntunnelled")
                        return
                    length = b"content-length: %d\r\n" % len(self.body)
                    stream.sendall(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + self.body)
                except OSError:
                    return

    def take(self):
        """The heads since the last call."""
        heads, self.heads = self.heads, []
        return heads

    def close(self):
        self.listener.close()


def fields(head, name):
    """The values of a field of a head, in their order."""
    lines = head.split(b"\r\n")[1:]
    pairs = (line.split(b":", 1) for line in lines if b":" in line)
    return [value.strip() for field, value in pairs if field.strip().lower() == name.lower()]
