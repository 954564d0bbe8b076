//! Buffers that are used again hold nothing of the frames before, which may have carried a PIN or a plaintext.
//!
//! What is freed is overwritten by the allocator ([`hsmux_token::Wiping`]).

use crate::frame::KEPT;

/// Overwrites bytes that are not needed any more.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // Else the compiler may leave out what it takes for a write that nobody reads.
    zeroize::optimization_barrier(bytes);
}

/// Empties a buffer. It keeps a little room for the next frame.
pub(crate) fn empty(buffer: &mut Vec<u8>) {
    wipe(buffer);
    buffer.clear();
    buffer.shrink_to(KEPT);
}
