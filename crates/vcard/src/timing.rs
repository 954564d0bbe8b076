//! Service times of a card.

use std::str::FromStr;

use serde::Deserialize;

use crate::key::KeyKind;

/// Operations with service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Operation {
    /// SIGN, RSA and ECDSA.
    Sign,
    /// DECRYPT with RSA.
    Decrypt,
    /// ECDH.
    Agree,
    /// A new key of any kind.
    Generate,
    /// WRAP KEY.
    Wrap,
    /// UNWRAP KEY.
    Unwrap,
    /// AES-CBC, both ways.
    Cipher,
    /// CMAC.
    Mac,
    /// Derivation from an AES or EC key.
    Derive,
}

/// The service times of a card's operations, from command to answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Timing {
    /// No delay.
    #[default]
    None,
    /// A SmartCard-HSM's: RSA-2048 658 ms, 256-bit curves 241 ms (published with the cluster of 2015), RSA-1024 about
    /// 230 ms, other sizes estimated. Private-key operations only, with a standard deviation of 2 %.
    SmartCardHsm,
    /// From a file.
    Table(Table),
}

/// Service times from TOML; the first matching row counts:
///
/// ```toml
/// [[time]]
/// operation = "sign"     # sign, decrypt, agree, generate, wrap, unwrap, cipher, mac, derive; none: all
/// key = "rsa-2048"       # rsa-2048, ec-256, aes-128, ...; none: all
/// mean_ms = 658
/// sd_ms = 13.2           # none: always exactly the mean
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    time: Vec<TimingRow>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimingRow {
    operation: Option<Operation>,
    key: Option<String>,
    mean_ms: f64,
    #[serde(default)]
    sd_ms: f64,
}

/// An invalid timing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Invalid TOML, or unexpected fields.
    #[error("service times: {0}")]
    Toml(String),
    /// A time that is negative, not a number, or over an hour.
    #[error("service times: row {0}: mean_ms and sd_ms must be from 0 to 3600000")]
    Range(usize),
    /// An unknown name.
    #[error("there is no timing {0:?}: none, smartcard-hsm, or a TOML file of service times")]
    Name(String),
}

/// Mean and standard deviation in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceTime {
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation.
    pub sd_ms: f64,
}

/// Private-key operations of a SmartCard-HSM in milliseconds. RSA-1024, RSA-2048 and 256-bit curves are measured,
/// the others estimated.
const SMARTCARD_HSM: &[(KeyKind, f64)] = &[
    (KeyKind::Rsa(1024), 230.0),
    (KeyKind::Rsa(1536), 400.0),
    (KeyKind::Rsa(2048), 658.0),
    (KeyKind::Rsa(3072), 1700.0),
    (KeyKind::Rsa(4096), 3600.0),
    (KeyKind::Ec(192), 180.0),
    (KeyKind::Ec(224), 210.0),
    (KeyKind::Ec(256), 241.0),
    (KeyKind::Ec(320), 330.0),
    (KeyKind::Ec(384), 430.0),
    (KeyKind::Ec(512), 720.0),
    (KeyKind::Ec(521), 750.0),
];

impl Timing {
    /// From the text of a TOML file.
    pub fn from_toml(text: &str) -> Result<Self, TimingError> {
        let table: Table = toml::from_str(text).map_err(|e| TimingError::Toml(e.to_string()))?;
        let sane = |ms: f64| (0.0..=3_600_000.0).contains(&ms);
        match table
            .time
            .iter()
            .position(|row| !sane(row.mean_ms) || !sane(row.sd_ms))
        {
            Some(row) => Err(TimingError::Range(row + 1)),
            None => Ok(Self::Table(table)),
        }
    }

    /// The duration of an operation; `None` if only its computation takes time.
    pub fn service(&self, operation: Operation, key: KeyKind) -> Option<ServiceTime> {
        match self {
            Self::None => None,
            Self::SmartCardHsm => {
                use Operation::{Agree, Decrypt, Sign};
                let private = matches!(operation, Sign | Decrypt | Agree);
                let row = SMARTCARD_HSM
                    .iter()
                    .find(|(kind, _)| private && *kind == key);
                row.map(|&(_, mean_ms)| ServiceTime {
                    mean_ms,
                    sd_ms: mean_ms * 0.02,
                })
            }
            Self::Table(table) => {
                let name = key.to_string();
                let fits = |row: &&TimingRow| {
                    row.operation.is_none_or(|only| only == operation)
                        && row.key.as_ref().is_none_or(|only| *only == name)
                };
                let row = table.time.iter().find(fits)?;
                Some(ServiceTime {
                    mean_ms: row.mean_ms,
                    sd_ms: row.sd_ms,
                })
            }
        }
    }
}

impl FromStr for Timing {
    type Err = TimingError;

    /// `none` or `smartcard-hsm`.
    fn from_str(name: &str) -> Result<Self, TimingError> {
        match name {
            "none" => Ok(Self::None),
            "smartcard-hsm" => Ok(Self::SmartCardHsm),
            _ => Err(TimingError::Name(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(timing: &Timing, operation: Operation, key: KeyKind) -> Option<f64> {
        timing
            .service(operation, key)
            .map(|service| service.mean_ms)
    }

    #[test]
    fn published_times() {
        let timing: Timing = "smartcard-hsm".parse().unwrap();
        assert_eq!(
            mean(&timing, Operation::Sign, KeyKind::Rsa(2048)),
            Some(658.0)
        );
        assert_eq!(
            mean(&timing, Operation::Sign, KeyKind::Ec(256)),
            Some(241.0)
        );
        assert_eq!(mean(&timing, Operation::Mac, KeyKind::Aes(128)), None);
        assert!("fast".parse::<Timing>().is_err());
    }

    #[test]
    fn the_first_row_that_fits_counts() {
        let timing = Timing::from_toml(
            "[[time]]\noperation = 'sign'\nkey = 'rsa-2048'\nmean_ms = 50\n[[time]]\nmean_ms = 1.5\nsd_ms = 0.5",
        )
        .unwrap();
        assert_eq!(
            mean(&timing, Operation::Sign, KeyKind::Rsa(2048)),
            Some(50.0)
        );
        assert_eq!(
            mean(&timing, Operation::Sign, KeyKind::Rsa(1024)),
            Some(1.5)
        );
        assert_eq!(mean(&timing, Operation::Wrap, KeyKind::Aes(256)), Some(1.5));
    }

    #[test]
    fn mistakes_are_named() {
        let error = Timing::from_toml("[[time]]\nmean = 5").unwrap_err();
        assert!(error.to_string().contains("mean_ms"), "{error}");
        let error = Timing::from_toml("[[time]]\nmean_ms = -1").unwrap_err();
        assert_eq!(error, TimingError::Range(1));
        assert!(Timing::from_toml("[[time]]\noperation = 'sing'\nmean_ms = 1").is_err());
    }
}
