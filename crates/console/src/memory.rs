//! The memory of each program.

use hsmux_token::Wiping;

/// Requests are made of small blocks that live for a moment, on several threads: the system's allocator takes a
/// fifth of the time of each. And it does not find again what was aligned, as the memory that the check of a PIN
/// takes (glibc before 2.38, bug 14581): a daemon grew by that with each login. It stands in for `malloc`, too (glibc's
/// manual, "Replacing malloc"): a signature of SoftHSM's takes a tenth less, and a handshake of BoringSSL's some.
#[global_allocator]
static ALLOCATOR: Wiping<mimalloc::MiMalloc> = Wiping(mimalloc::MiMalloc);

/// Takes no huge pages in this process and its children. The allocator asks for them, and each thread's few blocks fill
/// a part: a broker of 1,000 connections takes half as much memory again with them, and is no faster.
pub fn refuse_huge_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
