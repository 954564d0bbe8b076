//! PINs.
