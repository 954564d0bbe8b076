//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // An embedded pool has threads that may come to their end after C_Finalize: what they run stays
    // mapped when the application unloads the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
