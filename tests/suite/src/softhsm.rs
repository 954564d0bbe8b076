use std::fs;
use std::path::{Path, PathBuf};

use crate::{Run, hex};

/// SoftHSM's module.
pub const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// SoftHSM tokens in a separate folder.
pub struct SoftHsm {
    folder: PathBuf,
}

impl SoftHsm {
    /// Creates `folder`, without tokens.
    pub fn new(folder: &Path) -> Self {
        let tokens = folder.join("tokens");
        fs::create_dir_all(&tokens).expect("make the folder of tokens");
        let conf = format!(
            "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
            tokens.display()
        );
        let softhsm = Self {
            folder: folder.to_owned(),
        };
        fs::write(softhsm.conf(), conf).expect("write softhsm2.conf");
        softhsm
    }

    /// The path for `SOFTHSM2_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("softhsm2.conf")
    }

    /// The PIN of a token, different for each.
    pub fn pin(label: &str) -> String {
        format!("pin-of-{label}")
    }

    /// The SO-PIN of every token.
    pub const SO_PIN: &str = "so-pin-12345";

    fn util(&self, line: &str) -> Run {
        Run::new("softhsm2-util")
            .env("SOFTHSM2_CONF", self.conf())
            .args(line)
    }

    /// Initialises a token.
    pub fn init(&self, label: &str) {
        let (pin, so_pin) = (Self::pin(label), Self::SO_PIN);
        self.util(&format!(
            "--init-token --free --label {label} --so-pin {so_pin} --pin {pin}"
        ))
        .ok();
    }

    /// Imports all of `keys` into a token.
    pub fn import(&self, label: &str, keys: &TestKeys) {
        let pin = Self::pin(label);
        for (name, id) in [("rsa", "01"), ("ec", "02")] {
            self.util(&format!(
                "--token {label} --pin {pin} --label {name} --id {id} --import"
            ))
            .arg(keys.file(name))
            .ok();
            self.write(label, &format!("--id {id} --label {name} --type cert"))
                .arg(keys.certificate(name))
                .ok();
        }
        // Not with softhsm2-util: its `--aes` reads the file as text, and truncates the key at some bytes.
        self.write(
            label,
            "--id 03 --label aes --type secrkey --key-type AES:32 --sensitive",
        )
        .arg(keys.file("aes"))
        .ok();
    }

    /// Adds AES keys with different CKA_IDs to an unused token, by copies of one key's file, because SoftHSM takes 10
    /// ms per new key. Without CKA_PRIVATE it stores them unencrypted.
    pub fn fill(&self, label: &str, count: u32) {
        const ID: &[u8] = b"fill0000";
        let key = self.folder.join("fill.key");
        fs::write(&key, [7; 32]).expect("write a key");
        let names = format!("--id {} --label fill", hex(ID));
        self.write(label, &format!("{names} --type secrkey --key-type AES:32"))
            .arg(&key)
            .ok();
        let (file, mut object, at) = self.object_with(ID);
        for number in 1..count {
            object[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
            let name = format!("{number:08x}-0000-0000-0000-000000000000.object");
            fs::write(file.with_file_name(name), &object).expect("write a copy");
        }
    }

    /// How many objects all tokens have together, by their files: of two programs that log in to a token at the same
    /// time, one gets CKR_GENERAL_ERROR now and then.
    pub fn objects(&self) -> usize {
        let of_token = |file: &PathBuf| file.ends_with("token.object");
        let objects = self.files().into_iter().filter(|file| !of_token(file));
        objects
            .filter(|file| file.extension().is_some_and(|end| end == "object"))
            .count()
    }

    /// The files of all tokens.
    fn files(&self) -> Vec<PathBuf> {
        let below = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("a folder");
            entries.map(|entry| entry.expect("an entry").path())
        };
        let tokens: Vec<_> = below(&self.folder.join("tokens")).collect();
        tokens.iter().flat_map(|token| below(token)).collect()
    }

    /// The object file with these bytes, its contents, and their offset.
    fn object_with(&self, bytes: &[u8]) -> (PathBuf, Vec<u8>, usize) {
        let found = self.files().into_iter().find_map(|file| {
            let object = fs::read(&file).expect("a file of the token");
            let at = object.windows(bytes.len()).position(|part| part == bytes)?;
            Some((file, object, at))
        });
        found.expect("the object's file")
    }

    fn write(&self, label: &str, object: &str) -> Run {
        self.tool(label).args(object).arg("--write-object")
    }

    /// `pkcs11-tool` on the bare token, logged in.
    pub fn tool(&self, label: &str) -> Run {
        let pin = Self::pin(label);
        Run::new("pkcs11-tool")
            .env("SOFTHSM2_CONF", self.conf())
            .args(&format!(
                "--module {SOFTHSM} --token-label {label} --login --pin {pin}"
            ))
    }
}

/// Keys created outside, for import into several tokens: `rsa` (2048 bits, id 01), `ec` (P-256, id 02)
/// with certificates, and `aes` (256 bits, id 03).
pub struct TestKeys {
    folder: PathBuf,
}

impl TestKeys {
    /// Creates new keys.
    pub fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("make the folder of keys");
        let openssl = |line: &str| Run::new("openssl").dir(folder).args(line).ok();
        let kinds = [
            ("rsa", "RSA -pkeyopt rsa_keygen_bits:2048"),
            ("ec", "EC -pkeyopt ec_paramgen_curve:P-256"),
        ];
        for (name, kind) in kinds {
            openssl(&format!("genpkey -quiet -algorithm {kind} -out {name}.key"));
            openssl(&format!("pkey -in {name}.key -pubout -out {name}.pub"));
            openssl(&format!(
                "req -new -x509 -key {name}.key -subj /CN={name}.test -days 30 -outform DER -out {name}.der"
            ));
        }
        openssl("rand -out aes.key 32");
        Self {
            folder: folder.to_owned(),
        }
    }

    /// For rigs whose tokens have their own keys.
    pub(crate) fn none() -> Self {
        Self {
            folder: PathBuf::new(),
        }
    }

    /// A key's file: PKCS#8, or the raw 32 bytes of `aes`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// A public key's file, PEM.
    pub fn public(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pub"))
    }

    /// A certificate's file, DER.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.der"))
    }
}
