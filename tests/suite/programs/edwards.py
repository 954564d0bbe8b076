"""Signatures by keys on Edwards curves, as session objects and as token objects: Ed25519 and Ed448."""

import sys

from pkcs11 import *

CKM_EC_EDWARDS_KEY_PAIR_GEN, CKM_EDDSA = 0x1055, 0x1057
CKR_SIGNATURE_INVALID = 0xC0
CURVES = {"ed25519": (b"\x06\x03\x2b\x65\x70", 64), "ed448": (b"\x06\x03\x2b\x65\x71", 114)}

path, label, pin = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)


def check(public, private, length):
    """A signature has its length and is good, and a damaged one is not."""
    signature = session.keyed("Sign", private, CKM_EDDSA, b"a text")
    assert len(signature) == length, len(signature)
    session.verify(public, CKM_EDDSA, b"a text", signature)
    damaged = signature[:9] + bytes([signature[9] ^ 1]) + signature[10:]
    try:
        session.verify(public, CKM_EDDSA, b"a text", damaged)
    except Refused as refused:
        assert refused.rv == CKR_SIGNATURE_INVALID, refused
        return
    raise AssertionError("a damaged signature is good")


class Parameters(Structure):
    """CK_EDDSA_PARAMS."""

    _fields_ = [("prehash", c_ubyte), ("length", c_ulong), ("context", c_void_p)]


def with_parameter(name, private, prehash, context):
    """Says which call refuses a variant of EdDSA, if any does."""
    value = ctypes.create_string_buffer(context, len(context))
    parameter = Parameters(prehash, len(context), ctypes.cast(value, c_void_p) if context else None)
    kind = Mechanism(CKM_EDDSA, ctypes.cast(byref(parameter), c_void_p), ctypes.sizeof(parameter))
    variant = f"{name} prehash {prehash} context {len(context)}"
    room, room_length = ctypes.create_string_buffer(114), c_ulong(114)
    try:
        module.C_SignInit(session.handle, byref(kind), private)
    except Refused as refused:
        print(f"{variant}: C_SignInit says {refused.rv:#x}")
        return
    try:
        module.C_Sign(session.handle, b"a text", 6, room, byref(room_length))
        print(f"{variant}: taken")
    except Refused as refused:
        print(f"{variant}: C_Sign says {refused.rv:#x}")


for name, (curve, length) in CURVES.items():
    for kept in (False, True):
        names = {CKA_TOKEN: kept, CKA_LABEL: name.encode(), CKA_ID: name.encode()}
        public, private = session.generate_pair(
            CKM_EC_EDWARDS_KEY_PAIR_GEN,
            names | {CKA_EC_PARAMS: curve},
            names | {CKA_PRIVATE: True, CKA_SENSITIVE: True, CKA_SIGN: True},
        )
        check(public, private, length)
        for prehash, context in ((0, b"a context"), (1, b"")):
            with_parameter(name, private, prehash, context)
        print(f"{name} {'token' if kept else 'session'} key signs")
        if not kept:
            session.destroy(public)
            session.destroy(private)

# Another program finds them.
other = module.session(module.slot(label))
for name, (curve, length) in CURVES.items():
    [public] = other.find({CKA_CLASS: CKO_PUBLIC_KEY, CKA_LABEL: name.encode()})
    [private] = other.find({CKA_CLASS: CKO_PRIVATE_KEY, CKA_LABEL: name.encode()})
    check(public, private, length)
    print(f"{name} found and used")
