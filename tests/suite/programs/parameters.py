"""Keys and parameters that a token may refuse for a mechanism: a line for each, with the call that refuses it."""

import sys

from pkcs11 import *

CKM_RSA_PKCS_PSS, CKA_VERIFY = 0x0D, 0x10A
# By name: CKM_*, CKG_MGF1_*, CKM_*_HMAC, CKM_*_RSA_PKCS_PSS, and the bytes of the hash.
HASHES = {
    "sha1": (0x220, 1, 0x221, 0x0E, 20),
    "sha224": (0x255, 5, 0x256, 0x47, 28),
    "sha256": (0x250, 2, 0x251, 0x43, 32),
    "sha384": (0x260, 3, 0x261, 0x44, 48),
    "sha512": (0x270, 4, 0x271, 0x45, 64),
}

path, label, pin = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)


class Pss(Structure):
    """CK_RSA_PKCS_PSS_PARAMS."""

    _fields_ = [("hash", c_ulong), ("mgf", c_ulong), ("salt", c_ulong)]


def say(what, call, *arguments):
    try:
        call(*arguments)
        print(f"{what}: good")
    except Refused as refused:
        print(f"{what}: {refused.call} {refused.rv:#x}")


def mac(key, mechanism):
    signature = session.keyed("Sign", key, mechanism, b"a text")
    session.verify(key, mechanism, b"a text", signature)


def hmac_key(size, kept):
    name = f"{size} {kept}".encode()
    names = {CKA_TOKEN: kept, CKA_LABEL: name, CKA_ID: name}
    usage = {CKA_PRIVATE: True, CKA_SIGN: True, CKA_VERIFY: True, CKA_VALUE: bytes(range(size))}
    return session.create(names | usage | {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_GENERIC_SECRET})


def hmac_keys(kept, sizes):
    where = "token" if kept else "session"
    for size in sizes:
        key = hmac_key(size, kept)
        for hash_name, (_, _, mechanism, _, _) in HASHES.items():
            say(f"hmac {hash_name}, {where} key of {size} bytes", mac, key, mechanism)


def pss(key, public, mechanism, parameter, data):
    parameter = bytes(parameter)
    signature = session.keyed("Sign", key, mechanism, data, parameter)
    buffer = ctypes.create_string_buffer(parameter, len(parameter))
    kind = Mechanism(mechanism, ctypes.cast(buffer, c_void_p), len(parameter))
    module.C_VerifyInit(session.handle, byref(kind), public)
    module.C_Verify(session.handle, data, len(data), signature, len(signature))


def pss_parameters():
    private = session.find({CKA_CLASS: CKO_PRIVATE_KEY, CKA_LABEL: b"rsa"})[0]
    public = session.find({CKA_CLASS: CKO_PUBLIC_KEY, CKA_LABEL: b"rsa"})[0]
    for name, (kind, _, _, hashing, size) in HASHES.items():
        for mgf_name, (_, mgf, _, _, _) in HASHES.items():
            plain = Pss(kind, mgf, size)
            say(f"pss {name}, mgf {mgf_name}", pss, private, public, CKM_RSA_PKCS_PSS, plain, bytes(size))
            say(f"hashing pss {name}, mgf {mgf_name}", pss, private, public, hashing, plain, b"a text")
        for other_name, (other, mgf, _, _, other_size) in HASHES.items():
            if other_name != name:
                parameter = Pss(other, mgf, other_size)
                say(f"hashing pss {name}, hash {other_name}", pss, private, public, hashing, parameter, b"a text")


hmac_keys(False, (1, 16, 19, 20, 27, 28, 31, 32, 47, 48, 63, 64, 65))
hmac_keys(True, (16, 24, 32, 48, 64))
say("token key of 19 bytes", hmac_key, 19, True)
pss_parameters()
