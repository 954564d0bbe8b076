"""Signs on all tokens of a module at once, in one process: MODULE VARIABLE SECONDS KEY THREADS [TOKENS].

So many threads for each of the first TOKENS tokens sign with the key pair of this label, each in a session of its own.
The PIN is in the environment variable. Prints a measurement with the fields that `hsmux bench` has for it; signatures
are verified after it.

The rate is that of the time in which all threads are at work: the slope of a straight line through the moments at
which signatures came, until the end is called. Neither the first signatures, which all begin at once, nor the last,
while one token after the other has no more to do, make it higher or lower.
"""

import json
import os
import statistics
import sys
import threading
import time

from pkcs11 import *


def keys(module, pin, label, limit):
    """A session on each token, logged in, and the handles of its key pair."""
    for slot in module.slots()[:limit]:
        session = module.session(slot, False)
        session.login(pin)
        yield slot, [
            session.find({CKA_CLASS: kind, CKA_LABEL: label.encode()})[0]
            for kind in (CKO_PRIVATE_KEY, CKO_PUBLIC_KEY)
        ]


def rate(moments):
    """Signatures for each second."""
    if len(moments) < 2:
        return 0.0
    return statistics.linear_regression(moments, range(len(moments))).slope


def main(path, variable, seconds, label, threads, tokens=None):
    module = Module(path)
    module.initialize()
    found = list(keys(module, os.environ[variable], label, tokens and int(tokens)))
    count = int(threads) * len(found)
    ready, over, made, failed = threading.Barrier(count + 1), threading.Event(), [], []

    def sign(slot, private, public):
        session = module.session(slot, False)
        rsa = session.value(private, CKA_KEY_TYPE) == bytes(c_ulong(CKK_RSA))
        mechanism = CKM_RSA_PKCS if rsa else CKM_ECDSA
        # Whatever a token does once for a session is not measured.
        session.keyed("Sign", private, mechanism, os.urandom(32))
        ready.wait()
        while not over.is_set():
            digest = os.urandom(32)
            try:
                signature = session.keyed("Sign", private, mechanism, digest)
                made.append((time.monotonic(), session, public, mechanism, digest, signature))
            except Refused as refused:
                failed.append(refused)

    workers = [threading.Thread(target=sign, args=(slot, *pair)) for slot, pair in found for _ in range(int(threads))]
    for worker in workers:
        worker.start()
    ready.wait()
    started = time.monotonic()
    time.sleep(float(seconds))
    over.set()
    ended = time.monotonic()
    for worker in workers:
        worker.join()
    for _, session, public, mechanism, digest, signature in made:
        session.verify(public, mechanism, digest, signature)
    moments = sorted(moment for moment, *_ in made if moment <= ended)
    print(
        json.dumps(
            {
                "workers": count,
                "ops": len(moments),
                "failed": len(failed),
                "verified": len(made),
                "wrong": 0,
                "elapsed_s": ended - started,
                "per_second": rate(moments),
                "faults": [],
                "processes": [],
                "timeline": [],
                "interrupted": False,
            }
        )
    )


main(*sys.argv[1:])
