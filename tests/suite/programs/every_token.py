"""Signs on all tokens of a module at once, in one process: MODULE VARIABLE SECONDS KEY THREADS [TOKENS].

So many threads for each of the first TOKENS tokens sign with the P-256 key of this label, each in a session of its
own. The PIN is in the environment variable. Prints a measurement with the fields that `hsmux bench` has for it;
signatures are verified after it.
"""

import json
import os
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


def main(path, variable, seconds, label, threads, tokens=None):
    module = Module(path)
    module.initialize()
    found = list(keys(module, os.environ[variable], label, tokens and int(tokens)))
    count = int(threads) * len(found)
    ready, over, made, failed = threading.Barrier(count + 1), threading.Event(), [], []

    def sign(slot, private, public):
        session = module.session(slot, False)
        # Whatever a token does once for a session is not measured.
        session.keyed("Sign", private, CKM_ECDSA, os.urandom(32))
        ready.wait()
        while not over.is_set():
            digest = os.urandom(32)
            try:
                made.append((session, public, digest, session.keyed("Sign", private, CKM_ECDSA, digest)))
            except Refused as refused:
                failed.append(refused)

    workers = [threading.Thread(target=sign, args=(slot, *pair)) for slot, pair in found for _ in range(int(threads))]
    for worker in workers:
        worker.start()
    ready.wait()
    started = time.monotonic()
    time.sleep(float(seconds))
    over.set()
    for worker in workers:
        worker.join()
    elapsed = time.monotonic() - started
    for session, public, digest, signature in made:
        session.verify(public, CKM_ECDSA, digest, signature)
    print(
        json.dumps(
            {
                "workers": count,
                "ops": len(made),
                "failed": len(failed),
                "verified": len(made),
                "wrong": 0,
                "elapsed_s": elapsed,
                "per_second": len(made) / elapsed,
                "faults": [],
                "processes": [],
                "timeline": [],
                "interrupted": False,
            }
        )
    )


main(*sys.argv[1:])
