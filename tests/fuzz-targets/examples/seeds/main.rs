//! Writes seeds for the fuzz targets from real encoders: `cargo run -p hsmux-fuzz-targets --example seeds`.
//!
//! Seeds that need a private key are not made here: `jws`, `jwk` and `audit_lines` have theirs from `data/`.

mod c_border;
mod card;
mod operations;
mod services;
mod state;
mod text;
mod wire;

use std::fs;
use std::path::Path;

/// The input's first byte: the rest is a stream that comes as a whole.
const WHOLE: u8 = 0;
/// The same, in pieces of few bytes.
const IN_PIECES: u8 = 2;
/// Version 2 of answers; a connection that others hear, too.
const BIT: u8 = 0x40;

fn main() {
    wire::frames();
    wire::handed();
    services::packets();
    services::events();
    c_border::memory();
    card::cards();
    card::certificates();
    card::dkek_files();
    state::configuration();
    state::journal();
    state::trail();
    text::text();
}

fn write(target: &str, name: &str, bytes: impl AsRef<[u8]>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let folder = folder.join(target);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), bytes).expect("a seed");
}

fn after(how: u8, rest: &[u8]) -> Vec<u8> {
    [&[how], rest].concat()
}

fn framed<T: minicbor::Encode<()>>(message: &T) -> Vec<u8> {
    let mut item = Vec::new();
    minicbor::encode(message, &mut item).expect("an item");
    let length = u32::try_from(item.len()).expect("a frame");
    [&length.to_le_bytes()[..], &item].concat()
}
