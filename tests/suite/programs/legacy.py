"""DES, DSA and DH, for programs that still have such keys: each on session objects and on token objects."""

import hmac
import sys

from pkcs11 import *

CKM_DSA_PARAMETER_GEN, CKM_DSA_KEY_PAIR_GEN, CKM_DSA, CKM_DSA_SHA256 = 0x2000, 0x10, 0x11, 0x14
CKM_DH_PKCS_PARAMETER_GEN, CKM_DH_PKCS_KEY_PAIR_GEN, CKM_DH_PKCS_DERIVE = 0x2001, 0x20, 0x21
CKM_DES2_KEY_GEN, CKM_DES3_KEY_GEN, CKM_DES_KEY_GEN = 0x130, 0x131, 0x120
CKM_DES3_CBC_PAD, CKM_DES3_ECB, CKM_DES3_CBC_ENCRYPT_DATA = 0x136, 0x132, 0x1103
CKM_MD5_HMAC = 0x211
CKA_PRIME, CKA_SUBPRIME, CKA_BASE, CKA_PRIME_BITS, CKA_SUBPRIME_BITS = 0x130, 0x131, 0x132, 0x133, 0x134
CKA_VERIFY = 0x10A
CKK_DSA, CKK_DH, CKK_DES2, CKK_DES3, CKK_MD5_HMAC = 0x1, 0x2, 0x14, 0x15, 0x27
CKR_SIGNATURE_INVALID, CKR_KEY_TYPE_INCONSISTENT = 0xC0, 0x63

path, label, pin = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)


class DesCbcData(Structure):
    """CK_DES_CBC_ENCRYPT_DATA_PARAMS."""

    _fields_ = [("iv", c_ubyte * 8), ("data", c_void_p), ("length", c_ulong)]


def parameters(mechanism, wanted):
    """P and G, and Q of DSA."""
    made = session.generate(mechanism, wanted)
    kinds = [CKA_PRIME, CKA_BASE] + ([CKA_SUBPRIME] if mechanism == CKM_DSA_PARAMETER_GEN else [])
    return {kind: session.value(made, kind) for kind in kinds}


def names(kept, name):
    return {CKA_TOKEN: kept, CKA_LABEL: name.encode(), CKA_ID: name.encode()}


def is_refused(expected, call, *arguments):
    try:
        call(*arguments)
    except Refused as refused:
        assert refused.rv == expected, refused
        return
    raise AssertionError("it should have been refused")


def dsa(kept, domain):
    public, private = session.generate_pair(
        CKM_DSA_KEY_PAIR_GEN,
        names(kept, "dsa") | domain,
        names(kept, "dsa") | {CKA_PRIVATE: True, CKA_SENSITIVE: True, CKA_SIGN: True},
    )
    # By the key that somebody else brings, too.
    value = {CKA_CLASS: CKO_PUBLIC_KEY, CKA_KEY_TYPE: CKK_DSA, CKA_VALUE: session.value(public, CKA_VALUE)}
    brought = session.create(value | domain | {CKA_TOKEN: False, CKA_VERIFY: True})
    for mechanism, data in ((CKM_DSA, bytes(range(20))), (CKM_DSA_SHA256, b"a text")):
        signature = session.keyed("Sign", private, mechanism, data)
        assert len(signature) == 2 * len(domain[CKA_SUBPRIME]), len(signature)
        damaged = signature[:5] + bytes([signature[5] ^ 1]) + signature[6:]
        for key in (public, brought):
            session.verify(key, mechanism, data, signature)
            is_refused(CKR_SIGNATURE_INVALID, session.verify, key, mechanism, data, damaged)


def imported(kept, domain):
    """A DSA key that a program brings, both halves."""
    number = {kind: int.from_bytes(value, "big") for kind, value in domain.items()}
    secret = 0x1234567890ABCDEF
    value = pow(number[CKA_BASE], secret, number[CKA_PRIME])
    whole = names(kept, "imported") | domain | {CKA_KEY_TYPE: CKK_DSA}
    half = {CKA_CLASS: CKO_PUBLIC_KEY, CKA_VERIFY: True, CKA_VALUE: value.to_bytes(len(domain[CKA_PRIME]), "big")}
    public = session.create(whole | half)
    half = {CKA_CLASS: CKO_PRIVATE_KEY, CKA_PRIVATE: True, CKA_SIGN: True, CKA_VALUE: secret.to_bytes(20, "big")}
    private = session.create(whole | half)
    signature = session.keyed("Sign", private, CKM_DSA_SHA256, b"a text")
    session.verify(public, CKM_DSA_SHA256, b"a text", signature)


def dh(kept, domain):
    sides = [
        session.generate_pair(
            CKM_DH_PKCS_KEY_PAIR_GEN,
            names(kept, f"dh {side}") | domain,
            names(kept, f"dh {side}") | {CKA_PRIVATE: True, CKA_SENSITIVE: True, CKA_DERIVE: True},
        )
        for side in (0, 1)
    ]
    secrets = set()
    for side in (0, 1):
        other = session.value(sides[1 - side][0], CKA_VALUE)
        wanted = {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_GENERIC_SECRET, CKA_VALUE_LEN: 64}
        wanted |= {CKA_TOKEN: False, CKA_SENSITIVE: False, CKA_EXTRACTABLE: True}
        value = ctypes.create_string_buffer(other, len(other))
        kind, handle, attributes = Mechanism(CKM_DH_PKCS_DERIVE, ctypes.cast(value, c_void_p), len(other)), c_ulong(), template(wanted)
        module.C_DeriveKey(session.handle, byref(kind), sides[side][1], attributes, len(attributes), byref(handle))
        secrets.add(session.value(handle.value, CKA_VALUE))
    assert len(secrets) == 1, secrets


def triple_des(kept, name, mechanism):
    usage = {CKA_ENCRYPT: True, CKA_DECRYPT: True, CKA_DERIVE: True, CKA_SENSITIVE: True, CKA_PRIVATE: True}
    key = session.generate(mechanism, names(kept, name) | usage)
    iv = bytes(range(8))
    for text in (b"a text of more than one block", b"short"):
        secret = session.keyed("Encrypt", key, CKM_DES3_CBC_PAD, text, iv)
        assert session.keyed("Decrypt", key, CKM_DES3_CBC_PAD, secret, iv) == text
    data = ctypes.create_string_buffer(b"sixteen bytes ok", 16)
    wanted = {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_GENERIC_SECRET, CKA_VALUE_LEN: 16}
    wanted |= {CKA_TOKEN: False, CKA_SENSITIVE: False, CKA_EXTRACTABLE: True}
    parameter = DesCbcData((c_ubyte * 8)(*iv), ctypes.cast(data, c_void_p), 16)
    derived = session.derive(CKM_DES3_CBC_ENCRYPT_DATA, parameter, key, wanted)
    assert len(session.value(derived, CKA_VALUE)) == 16


def md5_hmac(kept):
    key = {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_MD5_HMAC, CKA_SIGN: True, CKA_VERIFY: True}
    key |= {CKA_PRIVATE: True, CKA_VALUE: b"Jefe" * 4}
    key = session.create(names(kept, "md5") | key)
    mac = session.keyed("Sign", key, CKM_MD5_HMAC, b"what do ya want for nothing?")
    assert mac == hmac.new(b"Jefe" * 4, b"what do ya want for nothing?", "md5").digest()
    session.verify(key, CKM_MD5_HMAC, b"what do ya want for nothing?", mac)
    usage = {CKA_TOKEN: False, CKA_VALUE_LEN: 16, CKA_SIGN: True, CKA_VERIFY: True}
    other = session.generate(CKM_AES_KEY_GEN, usage)
    kind = Mechanism(CKM_MD5_HMAC, None, 0)
    for init in ("C_SignInit", "C_VerifyInit"):
        is_refused(CKR_KEY_TYPE_INCONSISTENT, getattr(module, init), session.handle, byref(kind), other)


dsa_domain = parameters(CKM_DSA_PARAMETER_GEN, {CKA_PRIME_BITS: 1024})
dh_domain = parameters(CKM_DH_PKCS_PARAMETER_GEN, {CKA_PRIME_BITS: 512})
for kept in (False, True):
    where = "token" if kept else "session"
    for name, run, arguments in (
        ("dsa", dsa, [dsa_domain]),
        ("imported", imported, [dsa_domain]),
        ("dh", dh, [dh_domain]),
        ("des2", triple_des, ["des2", CKM_DES2_KEY_GEN]),
        ("des3", triple_des, ["des3", CKM_DES3_KEY_GEN]),
        ("md5", md5_hmac, []),
    ):
        try:
            run(kept, *arguments)
            print(f"{name} {where}: good")
        except Refused as refused:
            print(f"{name} {where}: {refused}")
try:
    session.generate(CKM_DES_KEY_GEN, {CKA_TOKEN: False, CKA_ENCRYPT: True, CKA_DECRYPT: True})
    print("des: made")
except Refused as refused:
    print(f"des: {refused}")
