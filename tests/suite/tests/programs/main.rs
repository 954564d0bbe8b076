//! Real programs on the module: each test runs on the bare token, through the daemon and with the
//! pool embedded in the program, and asks the same of all three.

mod fork;
mod generated;
mod java;
mod nss;
mod openssl;
mod p11_kit;
mod p11tool;
mod pkcs11_tool;
mod privileged;
mod python;
mod session_keys;
mod ssh;
mod threadless;
