//! Configuration: one TOML file, every mistake with its line.
