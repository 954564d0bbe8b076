//! PKCS#10
