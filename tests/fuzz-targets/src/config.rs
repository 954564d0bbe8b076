//! The configuration file.

use std::path::Path;

/// A text is a configuration, or has at least one mistake.
pub fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match hsmux_config::parse(Path::new("/etc/hsmux/hsmux.toml"), text) {
        Ok(config) => {
            let _ = hsmux_pool::Options::from(&config);
            for member in &config.tokens {
                assert!(config.member(&member.name).is_some());
            }
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "refused without a reason");
            for mistake in mistakes {
                assert!(!mistake.to_string().is_empty());
            }
        }
    }
}
