"""PKCS#11 over ctypes, as thin as can be: every call is the module's own, and so is its CK_RV.

PyKCS11 initialises again by itself where a module says CKR_CRYPTOKI_NOT_INITIALIZED, and holds the
interpreter's lock in a call; these tests can do with neither.
"""

import ctypes
import time
from ctypes import POINTER, Structure, byref, c_char, c_ubyte, c_ulong, c_void_p

CKA_CLASS, CKA_TOKEN, CKA_PRIVATE, CKA_LABEL, CKA_VALUE = 0x0, 0x1, 0x2, 0x3, 0x11
CKA_SIGN, CKA_EC_PARAMS, CKA_ID, CKA_VALUE_LEN = 0x108, 0x180, 0x102, 0x161
CKA_SENSITIVE, CKA_EXTRACTABLE, CKA_ENCRYPT, CKA_DECRYPT = 0x103, 0x162, 0x104, 0x105
CKA_KEY_TYPE, CKA_WRAP, CKA_UNWRAP, CKA_DERIVE = 0x100, 0x106, 0x107, 0x10C
CKA_MODULUS, CKA_MODULUS_BITS, CKA_PUBLIC_EXPONENT, CKA_EC_POINT = 0x120, 0x121, 0x122, 0x181
CKK_RSA, CKK_GENERIC_SECRET, CKK_AES = 0x0, 0x10, 0x1F
CKO_DATA, CKO_PUBLIC_KEY, CKO_PRIVATE_KEY, CKO_SECRET_KEY = 0, 2, 3, 4
CKM_RSA_PKCS, CKM_EC_KEY_PAIR_GEN, CKM_ECDSA = 0x1, 0x1040, 0x1041
CKM_AES_KEY_GEN, CKM_AES_CBC_PAD, CKM_SHA256_RSA_PKCS = 0x1080, 0x1085, 0x40
CKM_RSA_PKCS_KEY_PAIR_GEN, CKM_ECDH1_DERIVE, CKM_AES_KEY_WRAP = 0x0, 0x1050, 0x2109
CKM_AES_ECB, CKM_AES_ECB_ENCRYPT_DATA = 0x1081, 0x1104
CKF_RW_SESSION, CKF_SERIAL_SESSION, CKF_OS_LOCKING_OK = 0x2, 0x4, 0x2
CKU_USER = 1
CKR_BUFFER_TOO_SMALL = 0x150
P256 = bytes.fromhex("06082a8648ce3d030107")


class Mechanism(Structure):
    _fields_ = [("kind", c_ulong), ("parameter", c_void_p), ("length", c_ulong)]


class Attribute(Structure):
    _fields_ = [("kind", c_ulong), ("value", c_void_p), ("length", c_ulong)]


class StringData(Structure):
    """CK_KEY_DERIVATION_STRING_DATA."""

    _fields_ = [("data", c_void_p), ("length", c_ulong)]


class Ecdh(Structure):
    """CK_ECDH1_DERIVE_PARAMS."""

    _fields_ = [
        ("kdf", c_ulong),
        ("shared_length", c_ulong),
        ("shared", c_void_p),
        ("public_length", c_ulong),
        ("public", c_void_p),
    ]


class InitializeArgs(Structure):
    _fields_ = [(name, c_void_p) for name in ("create", "destroy", "lock", "unlock")] + [
        ("flags", c_ulong),
        ("reserved", c_void_p),
    ]


class TokenInfo(Structure):
    _fields_ = [
        ("label", c_char * 32),
        ("manufacturer", c_char * 32),
        ("model", c_char * 16),
        ("serial", c_char * 16),
        ("flags", c_ulong),
        ("rest", c_ubyte * 256),
    ]


class Refused(Exception):
    """A call that returned something else than CKR_OK, and how long it took for that."""

    def __init__(self, call, rv, took=0.0):
        super().__init__(f"{call}: 0x{rv:08x}")
        self.call, self.rv, self.took = call, rv, took


def template(attributes):
    """A dict of attributes as an array of CK_ATTRIBUTE; what it points to lives as long as it does."""
    array = (Attribute * len(attributes))()
    array.kept = []
    for slot, (kind, value) in zip(array, attributes.items()):
        if isinstance(value, bool):
            value = bytes([value])
        elif isinstance(value, int):
            value = bytes(c_ulong(value))
        buffer = ctypes.create_string_buffer(value, len(value))
        array.kept.append(buffer)
        slot.kind, slot.value, slot.length = kind, ctypes.cast(buffer, c_void_p), len(value)
    return array


class Module:
    """A loaded module; `module.C_Sign(...)` raises `Refused` unless it returns CKR_OK."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.longest = 0.0

    def __getattr__(self, name):
        function = getattr(self.library, name)
        function.restype = c_ulong

        def call(*arguments):
            integers = [c_ulong(a) if isinstance(a, int) else a for a in arguments]
            started = time.monotonic()
            rv = function(*integers)
            took = time.monotonic() - started
            self.longest = max(self.longest, took)
            if rv:
                raise Refused(name, rv, took)

        return call

    def initialize(self):
        self.C_Initialize(byref(InitializeArgs(flags=CKF_OS_LOCKING_OK)))

    def slots(self):
        count = c_ulong()
        while True:
            self.C_GetSlotList(c_ubyte(1), None, byref(count))
            slots = (c_ulong * count.value)()
            try:
                self.C_GetSlotList(c_ubyte(1), slots, byref(count))
            except Refused as refused:
                # A token may come between the two calls; the standard's answer is to ask anew.
                if refused.rv != CKR_BUFFER_TOO_SMALL:
                    raise
                continue
            return list(slots[: count.value])

    def token(self, slot):
        info = TokenInfo()
        self.C_GetTokenInfo(slot, byref(info))
        return {
            "slot": slot,
            "label": info.label.decode().rstrip(),
            "serial": info.serial.decode().rstrip(),
            "flags": info.flags,
        }

    def slot(self, label):
        """The slot of the token with a label."""
        for slot in self.slots():
            if self.token(slot)["label"] == label:
                return slot
        raise Refused(f"C_GetSlotList: no token {label}", 0xE0)

    def session(self, slot, writes=True):
        handle, flags = c_ulong(), CKF_SERIAL_SESSION | (CKF_RW_SESSION if writes else 0)
        self.C_OpenSession(slot, flags, None, None, byref(handle))
        return Session(self, handle.value)


class Session:
    def __init__(self, module, handle):
        self.module, self.handle = module, handle

    def login(self, pin):
        self.module.C_Login(self.handle, CKU_USER, pin.encode(), len(pin.encode()))

    def find(self, attributes):
        wanted, found, count = template(attributes), (c_ulong * 4096)(), c_ulong()
        self.module.C_FindObjectsInit(self.handle, wanted, len(wanted))
        try:
            self.module.C_FindObjects(self.handle, found, 4096, byref(count))
        finally:
            self.module.C_FindObjectsFinal(self.handle)
        return list(found[: count.value])

    def value(self, handle, kind):
        attribute = Attribute(kind, None, 0)
        self.module.C_GetAttributeValue(self.handle, handle, byref(attribute), 1)
        buffer = ctypes.create_string_buffer(attribute.length)
        attribute.value = ctypes.cast(buffer, c_void_p)
        self.module.C_GetAttributeValue(self.handle, handle, byref(attribute), 1)
        return buffer.raw[: attribute.length]

    def keyed(self, verb, key, mechanism, data, parameter=b""):
        """C_<verb>Init and C_<verb>: Sign, Encrypt or Decrypt."""
        buffer = ctypes.create_string_buffer(parameter, len(parameter)) if parameter else None
        kind = Mechanism(mechanism, ctypes.cast(buffer, c_void_p) if buffer else None, len(parameter))
        getattr(self.module, f"C_{verb}Init")(self.handle, byref(kind), key)
        out, length = ctypes.create_string_buffer(len(data) + 4096), c_ulong(len(data) + 4096)
        getattr(self.module, f"C_{verb}")(self.handle, data, len(data), out, byref(length))
        return out.raw[: length.value]

    def verify(self, key, mechanism, data, signature):
        self.module.C_VerifyInit(self.handle, byref(Mechanism(mechanism, None, 0)), key)
        self.module.C_Verify(self.handle, data, len(data), signature, len(signature))

    def create(self, attributes):
        wanted, handle = template(attributes), c_ulong()
        self.module.C_CreateObject(self.handle, wanted, len(wanted), byref(handle))
        return handle.value

    def generate(self, mechanism, attributes):
        wanted, handle = template(attributes), c_ulong()
        kind = Mechanism(mechanism, None, 0)
        self.module.C_GenerateKey(self.handle, byref(kind), wanted, len(wanted), byref(handle))
        return handle.value

    def generate_pair(self, mechanism, public, private):
        public, private = template(public), template(private)
        kind, handles = Mechanism(mechanism, None, 0), (c_ulong(), c_ulong())
        self.module.C_GenerateKeyPair(
            self.handle, byref(kind), public, len(public), private, len(private),
            byref(handles[0]), byref(handles[1]),
        )
        return handles[0].value, handles[1].value

    def wrap(self, mechanism, wrapping, key):
        out, length = ctypes.create_string_buffer(1024), c_ulong(1024)
        kind = Mechanism(mechanism, None, 0)
        self.module.C_WrapKey(self.handle, byref(kind), wrapping, key, out, byref(length))
        return out.raw[: length.value]

    def unwrap(self, mechanism, unwrapping, wrapped, attributes):
        wanted, handle = template(attributes), c_ulong()
        self.module.C_UnwrapKey(
            self.handle, byref(Mechanism(mechanism, None, 0)), unwrapping, wrapped, len(wrapped),
            wanted, len(wanted), byref(handle),
        )
        return handle.value

    def derive(self, mechanism, parameter, base, attributes):
        """C_DeriveKey; the parameter is the mechanism's own structure."""
        wanted, handle = template(attributes), c_ulong()
        kind = Mechanism(mechanism, ctypes.cast(byref(parameter), c_void_p), ctypes.sizeof(parameter))
        self.module.C_DeriveKey(self.handle, byref(kind), base, wanted, len(wanted), byref(handle))
        return handle.value

    def copy(self, handle, attributes):
        wanted, copy = template(attributes), c_ulong()
        self.module.C_CopyObject(self.handle, handle, wanted, len(wanted), byref(copy))
        return copy.value

    def set(self, handle, attributes):
        wanted = template(attributes)
        self.module.C_SetAttributeValue(self.handle, handle, wanted, len(wanted))

    def destroy(self, handle):
        self.module.C_DestroyObject(self.handle, handle)
