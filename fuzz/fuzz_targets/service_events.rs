#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hsmux_fuzz_targets::run("service_events", input));
