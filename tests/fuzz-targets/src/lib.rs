//! Fuzz targets: each is a function of arbitrary bytes that panics where the code under test breaks a promise.
//!
//! `fuzz/` wraps each in a program for libFuzzer (`make fuzz`). `tests/seeds.rs` runs the stored seeds and
//! every earlier finding through the same functions.

mod audit;
mod c;
mod card;
mod config;
mod frames;
mod handed;
mod http;
mod jwt;
mod pieces;
mod services;
mod transit;
mod uri;

/// A target.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders in `fuzz/seeds`.
pub const TARGETS: &[(&str, Target)] = &[
    ("audit_lines", audit::lines),
    ("batches", transit::batches),
    ("calls", frames::calls),
    ("configuration", config::configuration),
    ("cvc", card::cvc),
    ("direct", handed::direct),
    ("dkek_files", card::dkek_files),
    ("hosts", http::hosts),
    ("journal", audit::journal),
    ("jwk", jwt::jwk),
    ("jws", jwt::jws),
    ("key_blobs", card::key_blobs),
    ("mechanisms", c::mechanisms),
    ("proxy", http::proxy),
    ("replies", frames::replies),
    ("service_events", services::events),
    ("service_packets", services::packets),
    ("templates", c::templates),
    ("tlv", card::tlv),
    ("uris", uri::uris),
    ("vault", transit::vault),
];

/// Runs one input through the target of that name.
pub fn run(target: &str, input: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, run) = found.unwrap_or_else(|| panic!("no fuzz target {target}"));
    run(input);
}
