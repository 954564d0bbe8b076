//! Tickets that wait for the first write.

use boring::ssl::SslRef;
use foreign_types::ForeignTypeRef;

/// Sends the tickets that the end of a handshake over TLS 1.3 has made, which BoringSSL otherwise sends together with the
/// first bytes that are written. What the socket does not take now waits for those.
pub fn send(ssl: &mut SslRef) {
    // SAFETY: a session of BoringSSL that nobody else has meanwhile. For no bytes nothing is read from the pointer.
    // `boring` (5.4) itself does nothing where it is to write no bytes (SslStream::ssl_write).
    #[allow(unsafe_code)]
    unsafe {
        boring_sys::SSL_write(ssl.as_ptr(), std::ptr::null(), 0);
    }
}
