"""Session keys that are used together: each is made by another call, and all are wrapped by one."""

import ctypes
import sys

from pkcs11 import *

path, label, pin = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)

SESSION = {CKA_TOKEN: False, CKA_PRIVATE: True}
OPEN = {CKA_SENSITIVE: False, CKA_EXTRACTABLE: True}
AES = {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_AES, CKA_ENCRYPT: True} | SESSION | OPEN
LENGTH = {CKA_VALUE_LEN: 32}


def pointer(data):
    return ctypes.cast(data, c_void_p)


def generate():
    usage = {CKA_WRAP: True, CKA_UNWRAP: True, CKA_DERIVE: True}
    return session.generate(CKM_AES_KEY_GEN, AES | LENGTH | usage)


def derive(base):
    data = bytes(range(32))
    return session.derive(CKM_AES_ECB_ENCRYPT_DATA, StringData(pointer(data), 32), base, AES | LENGTH)


def agree():
    """ECDH of a new pair with its own public key."""
    public, private = session.generate_pair(
        CKM_EC_KEY_PAIR_GEN,
        {CKA_TOKEN: False, CKA_PRIVATE: False, CKA_EC_PARAMS: P256},
        SESSION | {CKA_DERIVE: True, CKA_SENSITIVE: True},
    )
    point = session.value(public, CKA_EC_POINT)[2:]
    return session.derive(CKM_ECDH1_DERIVE, Ecdh(1, 0, None, len(point), pointer(point)), private, AES | LENGTH)


def check_value(key):
    """As CKA_CHECK_VALUE of an AES key is defined (PKCS#11 3.0, section 4.10.2)."""
    return session.keyed("Encrypt", key, CKM_AES_ECB, bytes(16))[:3]


def travels(name, mechanism, wrapping, unwrapping, key):
    """Wraps a key, unwraps it and compares."""
    back = session.unwrap(mechanism, unwrapping, session.wrap(mechanism, wrapping, key), AES)
    same = check_value(key) == check_value(back)
    print(f"{name}: {'the same key' if same else 'ANOTHER KEY'}")


first = generate()
for number in range(3):
    travels(f"generated {number}", CKM_AES_KEY_WRAP, first, first, generate())
travels("derived", CKM_AES_KEY_WRAP, first, first, derive(generate()))
travels("agreed", CKM_AES_KEY_WRAP, first, first, agree())
travels("copied", CKM_AES_KEY_WRAP, first, first, session.copy(generate(), SESSION))

# The public key as an application brings it: an object of its own, not a half of the pair.
public, private = session.generate_pair(
    CKM_RSA_PKCS_KEY_PAIR_GEN,
    {CKA_TOKEN: False, CKA_PRIVATE: False, CKA_MODULUS_BITS: 2048, CKA_PUBLIC_EXPONENT: b"\x01\x00\x01"},
    SESSION | {CKA_UNWRAP: True, CKA_SENSITIVE: True},
)
numbers = {kind: session.value(public, kind) for kind in (CKA_MODULUS, CKA_PUBLIC_EXPONENT)}
brought = {CKA_CLASS: CKO_PUBLIC_KEY, CKA_KEY_TYPE: CKK_RSA, CKA_TOKEN: False, CKA_WRAP: True}
travels("by a public key", CKM_RSA_PKCS, session.create(brought | numbers), private, generate())
module.C_Finalize(None)
