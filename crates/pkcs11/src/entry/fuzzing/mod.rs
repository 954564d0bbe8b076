//! Entry for fuzz targets: builds valid C memory from a fuzzer's input and reads it back as the library does.
//!
//! Each array is a heap block of its exact size, so the address sanitizer sees one byte too many. A length is wrong
//! only where the library can detect it: longer than any object, or not zero behind a null pointer.

mod input;
mod mechanism;
mod template;

pub use mechanism::mechanism;
pub use template::template;
