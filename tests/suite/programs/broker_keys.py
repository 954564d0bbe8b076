"""What a program gets done with keys of the broker: one line for each attempt, with the CK_RV that refused it.

    broker_keys.py MODULE LABEL PIN                every attempt on every key that is seen
    broker_keys.py MODULE LABEL PIN open SEALED    deciphers, as often as makes a connection direct, and tries again
"""

import base64
import sys

from pkcs11 import *

MARK = b"hsmb\x01"
CKM_RSA_X_509, CKM_AES_CTR, CKM_AES_GCM, CKM_AES_CMAC, CKM_SHA256_HMAC = 0x3, 0x1086, 0x1087, 0x108A, 0x251
IV = bytes(16)

path, label, pin, *more = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)


class Gcm(Structure):
    """CK_GCM_PARAMS."""

    _fields_ = [
        ("iv", c_void_p),
        ("iv_length", c_ulong),
        ("iv_bits", c_ulong),
        ("aad", c_void_p),
        ("aad_length", c_ulong),
        ("tag_bits", c_ulong),
    ]


def gcm(nonce, tag_bits=128):
    buffer = ctypes.create_string_buffer(nonce, len(nonce))
    gcm.kept = buffer
    return bytes(Gcm(ctypes.cast(buffer, c_void_p), len(nonce), 8 * len(nonce), None, 0, tag_bits))


def attempt(what, call):
    try:
        call()
        print(f"{what}: done")
    except Refused as refused:
        print(f"{what}: 0x{refused.rv:x}")


def use(what, verb, key, mechanism, data, parameter=b""):
    attempt(what, lambda: session.keyed(verb, key, mechanism, data, parameter))


def on_any(name, key):
    attempt(f"{name} copy", lambda: session.copy(key, {CKA_TOKEN: True}))
    attempt(f"{name} rename", lambda: session.set(key, {CKA_LABEL: b"mine"}))
    attempt(f"{name} change", lambda: session.set(key, {CKA_ID: b"mine"}))
    attempt(f"{name} wrap", lambda: session.wrap(CKM_AES_KEY_WRAP, wrapping, key))
    attempt(f"{name} destroy", lambda: session.destroy(key))


def on_secret(name, key):
    attempt(f"{name} session-copy", lambda: session.copy(key, {CKA_TOKEN: False}))
    use(f"{name} gcm", "Encrypt", key, CKM_AES_GCM, IV, gcm(IV[:12]))
    use(f"{name} short-tag", "Decrypt", key, CKM_AES_GCM, IV, gcm(IV[:12], 32))
    use(f"{name} ecb", "Encrypt", key, CKM_AES_ECB, IV)
    use(f"{name} unecb", "Decrypt", key, CKM_AES_ECB, IV)
    use(f"{name} ctr", "Encrypt", key, CKM_AES_CTR, IV, bytes(c_ulong(32)) + IV)
    use(f"{name} cmac", "Sign", key, CKM_AES_CMAC, IV)
    use(f"{name} hmac", "Sign", key, CKM_SHA256_HMAC, IV)


def on_private(name, key):
    use(f"{name} ecdsa", "Sign", key, CKM_ECDSA, bytes(32))
    use(f"{name} pkcs", "Sign", key, CKM_SHA256_RSA_PKCS, IV)
    use(f"{name} raw", "Decrypt", key, CKM_RSA_X_509, bytes(256))
    use(f"{name} unpad", "Decrypt", key, CKM_RSA_PKCS, bytes(256))
    # As NSS makes it: the same key by another handle.
    copy = session.copy(key, {CKA_TOKEN: False})
    use(f"{name} copy-raw", "Decrypt", copy, CKM_RSA_X_509, bytes(256))
    use(f"{name} copy-unpad", "Decrypt", copy, CKM_RSA_PKCS, bytes(256))


def of_broker():
    for kind in (CKO_SECRET_KEY, CKO_PRIVATE_KEY, CKO_PUBLIC_KEY):
        for key in session.find({CKA_CLASS: kind}):
            if session.value(key, CKA_ID).startswith(MARK):
                yield kind, session.value(key, CKA_LABEL).decode(), key


def forge():
    marked = {CKA_ID: MARK + bytes([2, 0, 0, 0, 0, 9]) + bytes(8), CKA_LABEL: b"app-forged"}
    value = {CKA_VALUE: IV, CKA_KEY_TYPE: CKK_AES, CKA_CLASS: CKO_SECRET_KEY, CKA_TOKEN: True}
    length = {CKA_VALUE_LEN: 16, CKA_TOKEN: True}
    attempt("forged create", lambda: session.create(value | marked))
    attempt("forged generate", lambda: session.generate(CKM_AES_KEY_GEN, length | marked))
    attempt("forged rename", lambda: session.set(wrapping, {CKA_ID: marked[CKA_ID]}))


# A session object: the program's own, and what keys would be wrapped under.
wrapping = session.generate(
    CKM_AES_KEY_GEN, {CKA_TOKEN: False, CKA_VALUE_LEN: 16, CKA_WRAP: True, CKA_ENCRYPT: True}
)
if more:
    sealed = base64.b64decode(more[1].removeprefix("vault:v1:"))
    nonce, text = sealed[:12], sealed[12:]
    key = next(key for kind, name, key in of_broker() if kind == CKO_SECRET_KEY and name == "app-gcm")
    for _ in range(200):
        session.keyed("Decrypt", key, CKM_AES_GCM, text, gcm(nonce))
    print("opened")
    use("again gcm", "Encrypt", key, CKM_AES_GCM, IV, gcm(nonce))
    use("again ecb", "Encrypt", key, CKM_AES_ECB, IV)
    sys.exit()
found = list(of_broker())
print("seen:", " ".join(sorted({name for _, name, _ in found})))
forge()
for kind, name, key in found:
    {CKO_SECRET_KEY: on_secret, CKO_PRIVATE_KEY: on_private}.get(kind, lambda *_: None)(name, key)
# Last, for a key that is gone cannot be tried again.
for kind, name, key in found:
    on_any(f"{name} {kind}", key)
