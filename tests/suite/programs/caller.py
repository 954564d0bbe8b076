"""A program that uses a PKCS#11 module and lives as long as a test wants.

Each line of its standard input is a request in JSON, each line of its output the answer:
`{"ok": ...}`, or `{"rv": CK_RV, "call": NAME}` where the module refused.
"""

import hashlib
import json
import os
import sys
import threading
import time

from pkcs11 import *

CLASSES = {"private": CKO_PRIVATE_KEY, "public": CKO_PUBLIC_KEY, "secret": CKO_SECRET_KEY, "data": CKO_DATA}


class Caller:
    def __init__(self, path):
        self.module = Module(path)
        self.session = None
        self.load = None

    def do_open(self, label, pin=None, writes=True):
        """C_Initialize, a session on the token, and a login where there is a PIN."""
        self.do_initialize()
        self.do_use(label, pin, writes)

    def do_initialize(self):
        self.module.initialize()

    def do_use(self, label, pin=None, writes=True):
        """A new session on the token, and a login."""
        self.label = label
        self.session = self.module.session(self.module.slot(label), writes)
        if pin is not None:
            self.session.login(pin)

    def do_session(self, slot):
        """C_OpenSession, whether a token is there or not."""
        self.module.session(slot)

    def do_close(self):
        self.module.C_Finalize(None)

    def do_login(self, pin):
        self.session.login(pin)

    def do_tokens(self):
        return [self.module.token(slot) for slot in self.module.slots()]

    def do_objects(self, kind=None):
        wanted = {CKA_CLASS: CLASSES[kind]} if kind else {}
        return [self.session.value(handle, CKA_LABEL).decode() for handle in self.session.find(wanted)]

    def key(self, kind, label):
        found = self.session.find({CKA_CLASS: CLASSES[kind], CKA_LABEL: label.encode()})
        if not found:
            raise Refused(f"no {kind} {label}", 0)
        return found[0]

    def do_sign(self, label="ec"):
        """One ECDSA signature, verified."""
        digest = os.urandom(32)
        signature = self.session.keyed("Sign", self.key("private", label), CKM_ECDSA, digest)
        self.session.verify(self.key("public", label), CKM_ECDSA, digest, signature)
        return signature.hex()

    def do_keyed(self, verb, mechanism, label="ec", kind="private", parameter=""):
        """Any verb by any mechanism, with a parameter in hexadecimal digits."""
        key, parameter = self.key(kind, label), bytes.fromhex(parameter)
        return self.session.keyed(verb, key, mechanism, b"text", parameter).hex()

    def do_verify(self, mechanism, label="ec", damaged=False):
        """A signature by any mechanism, verified as it is or after it was damaged."""
        signature = self.session.keyed("Sign", self.key("private", label), mechanism, b"text")
        if damaged:
            signature = bytes([signature[0] ^ 1]) + signature[1:]
        self.session.verify(self.key("public", label), mechanism, b"text", signature)
        return len(signature)

    def do_encrypt(self, label="aes", text="two blocks of plain text"):
        """There and back again, by AES-CBC with padding."""
        key, iv = self.key("secret", label), os.urandom(16)
        secret = self.session.keyed("Encrypt", key, CKM_AES_CBC_PAD, text.encode(), iv)
        assert self.session.keyed("Decrypt", key, CKM_AES_CBC_PAD, secret, iv) == text.encode()
        return secret.hex()

    def do_generate(self, label, kind="private", token=True):
        names = {CKA_TOKEN: token, CKA_LABEL: label.encode(), CKA_ID: label.encode()}
        if kind == "secret":
            usage = {CKA_VALUE_LEN: 32, CKA_ENCRYPT: True, CKA_DECRYPT: True}
            return self.session.generate(CKM_AES_KEY_GEN, names | usage)
        public = {CKA_EC_PARAMS: P256}
        private = {CKA_SIGN: True, CKA_PRIVATE: True}
        return self.session.generate_pair(CKM_EC_KEY_PAIR_GEN, names | public, names | private)

    def do_import(self, label, value):
        """A secret key of this value, in hexadecimal digits, for HMACs."""
        names = {CKA_TOKEN: True, CKA_LABEL: label.encode(), CKA_ID: label.encode()}
        key = {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_GENERIC_SECRET, CKA_PRIVATE: True, CKA_SIGN: True}
        return self.session.create(names | key | {CKA_VALUE: bytes.fromhex(value)})

    def do_store(self, label, value):
        names = {CKA_CLASS: CKO_DATA, CKA_TOKEN: True, CKA_PRIVATE: False}
        return self.session.create(names | {CKA_LABEL: label.encode(), CKA_VALUE: value.encode()})

    def do_rename(self, kind, label, name):
        self.session.set(self.key(kind, label), {CKA_LABEL: name.encode()})

    def do_destroy(self, kind, label):
        self.session.destroy(self.key(kind, label))

    def do_start_load(self, threads=4, label="ec", once=False, mechanism=CKM_ECDSA):
        """Signs in as many threads until `stop_load`, or once; every thread has a session of its own. Another mechanism
        is to hash as CKM_ECDSA_SHA256 does."""
        self.load = Load(self, threads, label, once, mechanism)

    def do_stop_load(self):
        return self.load.stop()

    def do_progress(self):
        return self.load.progress()

    def do_fork(self, again):
        """What a child sees: with `again` it initialises for itself, without it just calls."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            # Not before the fork: another thread may open one meanwhile.
            inherited = sockets()
            answer = self.answer(self.child_again if again else self.child_bare)
            answer["kept"] = sorted(inherited & sockets())
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        return json.loads(said) if status == 0 else {"died": status}

    def child_bare(self):
        return self.do_sign()

    def child_again(self):
        self.do_open(self.label, self.pin)
        signature = self.do_sign()
        self.module.C_Finalize(None)
        return signature

    def answer(self, work, **arguments):
        self.module.longest = 0.0
        try:
            answer = {"ok": work(**arguments)}
        except Refused as refused:
            answer = {"rv": refused.rv, "call": refused.call}
        return answer | {"longest": self.module.longest}

    def serve(self):
        for line in sys.stdin:
            request = json.loads(line)
            work = getattr(self, "do_" + request.pop("do"))
            self.pin = request.get("pin", getattr(self, "pin", None))
            print(json.dumps(self.answer(work, **request)), flush=True)


def sockets():
    """The sockets that this process has open, by what tells one from another."""
    links = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            pass  # the listing's own
    return {link for link in links if link.startswith("socket:")}


class Load:
    """Threads that sign; counts what worked, what failed and with which CK_RV."""

    def __init__(self, caller, threads, label, once, mechanism):
        self.mechanism = mechanism
        self.caller, self.signed, self.failed, self.running, self.once = caller, 0, {}, True, once
        self.longest, self.longest_refusal, self.lock = 0.0, 0.0, threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(label,)) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, label):
        session = private = public = None
        while self.running:
            started = time.monotonic()
            try:
                if session is None:
                    session, private, public = self.begin(label)
                digest = os.urandom(32)
                signature = session.keyed("Sign", private, self.mechanism, digest)
                if self.mechanism != CKM_ECDSA:
                    digest = hashlib.sha256(digest).digest()
                session.verify(public, CKM_ECDSA, digest, signature)
                with self.lock:
                    self.signed += 1
            except Refused as refused:
                session = None
                name = f"{refused.call} 0x{refused.rv:x}"
                with self.lock:
                    self.failed[name] = self.failed.get(name, 0) + 1
                    self.longest_refusal = max(self.longest_refusal, refused.took)
                time.sleep(0.01)
            with self.lock:
                self.longest = max(self.longest, time.monotonic() - started)
            if self.once:
                return

    def begin(self, label):
        module = self.caller.module
        session = module.session(module.slot(self.caller.label))
        try:
            session.login(self.caller.pin)
        except Refused as refused:
            if refused.rv != 0x100:  # CKR_USER_ALREADY_LOGGED_IN
                raise
        keys = [
            session.find({CKA_CLASS: CLASSES[kind], CKA_LABEL: label.encode()})
            for kind in ("private", "public")
        ]
        if not all(keys):
            raise Refused("C_FindObjects: nothing", 0)
        return session, keys[0][0], keys[1][0]

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()
        return self.progress()

    def progress(self):
        with self.lock:
            return {
                "signed": self.signed,
                "failed": dict(self.failed),
                "longest": self.longest,
                "longest_refusal": self.longest_refusal,
            }


Caller(sys.argv[1]).serve()
