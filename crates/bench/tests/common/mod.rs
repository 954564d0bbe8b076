//! A signing token in memory, with configurable faults.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hsmux_bench::{BenchKey, Latency, Measurement, Process, Progress, RunControl, sign};
use hsmux_software::{digest, identify, prehash};
use hsmux_token::{
    Attributes, Batch, Error, Kind, Operation, Outcome, Result, Snapshot, Token, TokenInfo, ck,
};
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::{Signature, SigningKey};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// One P-256 key.
pub struct Signer {
    pub key: SigningKey,
    /// The period of failed signatures; 0 for none.
    pub fails_every: u64,
    /// The period of wrong signatures; 0 for none.
    pub lies_every: u64,
    /// The additional duration of a signature.
    pub takes: Duration,
    pub signed: AtomicU64,
}

impl Signer {
    pub fn new() -> Self {
        Self {
            key: SigningKey::from_slice(&[7; 32]).unwrap(),
            fails_every: 0,
            lies_every: 0,
            takes: Duration::ZERO,
            signed: AtomicU64::new(0),
        }
    }

    fn attributes(&self) -> [Attributes; 2] {
        let point = self.key.verifying_key().to_sec1_point(false);
        let both = |class| {
            Attributes::default()
                .with_number(ck::CKA_CLASS, class)
                .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
                .with(ck::CKA_ID, vec![1])
                .with(ck::CKA_LABEL, b"web".to_vec())
        };
        let public = both(ck::CKO_PUBLIC_KEY)
            .with(ck::CKA_EC_PARAMS, hex("06082a8648ce3d030107"))
            .with(ck::CKA_EC_POINT, point.as_bytes().to_vec());
        [
            public,
            both(ck::CKO_PRIVATE_KEY).with_flag(ck::CKA_SIGN, true),
        ]
    }
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

impl Token for Signer {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::new(TokenInfo {
            label: "memory".into(),
            ..TokenInfo::default()
        })
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let objects = identify("1", self.attributes().to_vec());
        Ok(Arc::new(Snapshot {
            epoch: 1,
            objects,
            is_partial: false,
        }))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, _: Instant) -> Result<Outcome> {
        let Operation::Use {
            data, mechanism, ..
        } = operation
        else {
            return Err(Error::request(Kind::Unsupported, "only signatures"));
        };
        let number = self.signed.fetch_add(1, Ordering::Relaxed) + 1;
        let hits = |every: u64| every > 0 && number.is_multiple_of(every);
        if hits(self.fails_every) {
            return Err(Error::vendor("C_Sign", ck::CKR_DEVICE_ERROR));
        }
        if !self.takes.is_zero() {
            std::thread::sleep(self.takes);
        }
        let digest = match prehash(mechanism) {
            Some((hash, _)) => digest(hash, data),
            None => data.to_vec(),
        };
        let signature: Signature = self.key.sign_prehash(&digest).unwrap();
        let mut signature = signature.to_bytes().to_vec();
        signature[9] ^= u8::from(hits(self.lies_every));
        Ok(Outcome::Bytes(signature.into()))
    }
}

/// Without progress and interruption.
pub fn quiet() -> RunControl<'static> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    RunControl {
        stop: &NEVER,
        progress: &|_: &Progress| (),
    }
}

/// Checks the report's JSON by the schema, and returns it.
pub fn keeps_schema(report: &impl serde::Serialize) -> serde_json::Value {
    let schema = include_str!("../../../../docs/bench-schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let json = serde_json::to_value(report).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&json)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{json:#}");
    json
}

/// Checks that no line exceeds 80 columns.
pub fn fits_80_columns(text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= 80,
            "{} columns: {line}",
            line.chars().count()
        );
    }
}

/// The configuration of a TLS server with a certificate in this folder, and the certificate's file.
pub fn tls_server(folder: &Path) -> (PathBuf, Arc<ServerConfig>) {
    let (pem, key) = certificate(folder);
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(&pem).unwrap()],
            PrivateKeyDer::from_pem_file(&key).unwrap(),
        );
    (pem, Arc::new(config.unwrap()))
}

/// A self-signed certificate for 127.0.0.1, and its key.
pub fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let (pem, key) = (folder.join("server.pem"), folder.join("server.key"));
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(' '))
        .args("-subj /CN=server -addext subjectAltName=IP:127.0.0.1".split(' '))
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .args([key.as_os_str(), "-out".as_ref(), pem.as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (pem, key)
}

/// Signatures by this signer without a warm-up.
pub fn options(signer: Signer, concurrency: usize, count: u64) -> sign::SignOptions {
    let token: Arc<dyn Token> = Arc::new(signer);
    let key = BenchKey::find(&*token, None).unwrap();
    let mut options = sign::SignOptions::new(token, "memory", key, concurrency, count);
    options.warm_up = Duration::ZERO;
    options
}

/// A real measurement with replaced rate and median, so that computed values are known.
pub fn measured(per_second: f64, p50: f64) -> Measurement {
    let options = options(Signer::new(), 1, 20);
    let found = sign::run(&options, quiet()).unwrap().measurement;
    let latency = found.latency_us.unwrap();
    let process = |cpu_s| Process {
        pid: 1,
        name: "one".into(),
        cpu_s,
        cpu_percent: 0.0,
        peak_memory_bytes: 0,
    };
    Measurement {
        per_second,
        elapsed_s: 1.0,
        // The measuring process, and a server with CPU time equal to its latency.
        processes: vec![process(1e3), process(p50)],
        latency_us: Some(Latency { p50, ..latency }),
        ..found
    }
}
