//! Keys and signatures of the openssl CLI, as an independent opinion.

#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hsmux_software::PublicKey;
use hsmux_token::Result;

/// A key pair in a file of a temporary folder.
pub struct Pair {
    folder: tempfile::TempDir,
    pub public: PublicKey,
}

impl Pair {
    /// By the arguments of `openssl genpkey`: `["-algorithm", "ED25519"]`.
    pub fn generate(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        let mut all = vec!["genpkey", "-out", path(&file)];
        all.extend(arguments);
        openssl(&all, &[]);
        Self::read(folder)
    }

    pub fn rsa(bits: usize) -> Self {
        Self::generate(&[
            "-algorithm",
            "RSA",
            "-pkeyopt",
            &format!("rsa_keygen_bits:{bits}"),
        ])
    }

    pub fn ec(curve: &str) -> Self {
        let curve = format!("ec_paramgen_curve:{curve}");
        Self::generate(&[
            "-algorithm",
            "EC",
            "-pkeyopt",
            &curve,
            "-pkeyopt",
            "ec_param_enc:named_curve",
        ])
    }

    fn read(folder: tempfile::TempDir) -> Self {
        let file = folder.path().join("key.pem");
        let spki = openssl(
            &["pkey", "-in", path(&file), "-pubout", "-outform", "DER"],
            &[],
        );
        Self {
            folder,
            public: PublicKey::from_spki(&spki).unwrap(),
        }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// `openssl dgst`, which hashes and signs.
    pub fn sign_hashed(&self, hash: &str, options: &[&str], data: &[u8]) -> Vec<u8> {
        let file = self.file();
        let mut all = vec!["dgst", hash, "-sign", path(&file)];
        for option in options {
            all.extend(["-sigopt", option]);
        }
        openssl(&all, data)
    }

    /// `openssl pkeyutl`: `sign`, `decrypt`.
    pub fn pkeyutl(&self, act: &[&str], options: &[&str], data: &[u8]) -> Vec<u8> {
        let (file, input) = (self.file(), self.folder.path().join("input"));
        std::fs::write(&input, data).unwrap();
        let mut all = vec!["pkeyutl", "-inkey", path(&file), "-in", path(&input)];
        all.extend(act);
        for option in options {
            all.extend(["-pkeyopt", option]);
        }
        openssl(&all, &[])
    }

    pub fn certificate(&self) -> Vec<u8> {
        let file = self.file();
        openssl(
            &[
                "req",
                "-x509",
                "-new",
                "-key",
                path(&file),
                "-subj",
                "/CN=test",
                "-outform",
                "DER",
            ],
            &[],
        )
    }
}

/// Runs openssl and gives what it wrote.
pub fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments:?}: {said}");
    output.stdout
}

/// The DER of an ECDSA signature as r and s of equal length.
pub fn raw(der: &[u8], len: usize) -> Vec<u8> {
    use der::Decode;
    let integers = Vec::<der::asn1::UintRef<'_>>::from_der(der).unwrap();
    let [r, s] = <[_; 2]>::try_from(integers).unwrap();
    let half = |number: &[u8]| [&vec![0; len / 2 - number.len()], number].concat();
    [half(r.as_bytes()), half(s.as_bytes())].concat()
}

/// The vendor code that a refused verification answers.
pub fn code(result: Result<()>) -> u64 {
    result
        .expect_err("a refusal")
        .code()
        .expect("a vendor code")
}

pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
