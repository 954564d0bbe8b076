"""Asks a unix socket one line and prints the answer: haproxy's own command line."""

import socket
import sys

with socket.socket(socket.AF_UNIX) as stats:
    stats.connect(sys.argv[1])
    stats.sendall(f"{sys.argv[2]}\n".encode())
    while part := stats.recv(65536):
        sys.stdout.write(part.decode())
