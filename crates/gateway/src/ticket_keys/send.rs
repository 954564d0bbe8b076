//! Sends tickets that wait for the first write.

use boring::ssl::SslRef;
use foreign_types::ForeignTypeRef;

/// Sends the tickets of a handshake of TLS 1.3. BoringSSL would otherwise send them with the first bytes that are
/// written. If the socket does not take all, the rest waits for those.
pub fn send(ssl: &mut SslRef) {
    // SAFETY: a session of BoringSSL that nobody else has meanwhile. For no bytes nothing is read from the pointer.
    // `boring` (5.4) itself does nothing where it is to write no bytes (SslStream::ssl_write).
    #[allow(unsafe_code)]
    unsafe {
        boring_sys::SSL_write(ssl.as_ptr(), std::ptr::null(), 0);
    }
}
