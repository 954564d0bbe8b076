//! Failures of handshakes, in words, with advice.

use std::io;

use rustls::{AlertDescription, CertificateError, Error as Tls};

/// Why hosts do not come together.
pub struct ConnectFailure {
    /// The problem.
    pub problem: String,
    /// The advice.
    pub advice: &'static str,
}

const ENROLL: &str = "make another where the authority is: hsmux node enroll NAME";
const SAME_CA: &str = "give both hosts certificates of one authority, and its ca.pem";
const NAMES: &str =
    "`name` of the [[token]] is to be what the certificate says: hsmux node list shows it";
const CLOCK: &str = "set the clocks of both hosts";
const LOOK: &str = "see the log of the other host, and hsmux status there";

impl ConnectFailure {
    /// Explains a failed handshake, or a failed read after it.
    pub fn of(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        match tls {
            Some(tls) => Self::of_tls(tls),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::new(
                "the other end closed the connection during the handshake",
                "is it a [node] of hsmux that listens there?",
            ),
            None => Self::new(
                error.to_string(),
                "is the other host up, and the way to it open?",
            ),
        }
    }

    fn of_tls(error: &Tls) -> Self {
        match error {
            Tls::InvalidCertificate(why) => Self::of_certificate(why),
            Tls::NoCertificatesPresented => Self::new(
                "it shows no certificate",
                "a [node] of hsmux shows its own; is it one?",
            ),
            Tls::AlertReceived(alert) => Self::of_alert(*alert),
            Tls::InvalidMessage(_) => Self::new(
                "what came is not TLS",
                "this port is for other hosts of hsmux; plain HTTP and others have nothing to find here",
            ),
            Tls::PeerIncompatible(why) => Self::new(
                format!("it does not speak TLS 1.3 as hosts of hsmux do: {why:?}"),
                "is it a [node] of hsmux?",
            ),
            other => Self::new(other.to_string(), LOOK),
        }
    }

    fn of_certificate(why: &CertificateError) -> Self {
        use CertificateError as Bad;
        match why {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                Self::new("its certificate has expired", ENROLL)
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                Self::new("its certificate is not valid yet", CLOCK)
            }
            Bad::Revoked => Self::new("its certificate was revoked", ENROLL),
            Bad::UnknownIssuer | Bad::BadSignature => {
                Self::new("its certificate is of another authority", SAME_CA)
            }
            Bad::NotValidForName => Self::new("its certificate is for another name", NAMES),
            Bad::NotValidForNameContext {
                expected,
                presented,
            } => Self::new(
                format!(
                    "its certificate is for another name: {} and not {}",
                    presented.join(", "),
                    expected.to_str()
                ),
                NAMES,
            ),
            other => Self::new(format!("its certificate is not good: {other}"), ENROLL),
        }
    }

    /// Explains an alert of the other end about this one.
    fn of_alert(alert: AlertDescription) -> Self {
        use AlertDescription as Alert;
        let (problem, advice) = match alert {
            Alert::CertificateExpired => ("says that this host's certificate has expired", ENROLL),
            Alert::CertificateRevoked => ("says that this host's certificate was revoked", ENROLL),
            Alert::UnknownCA | Alert::DecryptError => (
                "says that this host's certificate is of another authority",
                SAME_CA,
            ),
            Alert::CertificateRequired => ("says that this host shows no certificate", ENROLL),
            other => return Self::new(format!("refuses this host: {other:?}"), LOOK),
        };
        Self::new(problem, advice)
    }

    fn new(problem: impl Into<String>, advice: &'static str) -> Self {
        Self {
            problem: problem.into(),
            advice,
        }
    }
}

impl std::fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}
