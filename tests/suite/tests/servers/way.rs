//! How a server's OpenSSL comes to a key of the pool.

use std::fs;

use hsmux_suite::Rig;

/// Libraries of OpenSSL's that a server may use.
#[derive(Clone, Copy)]
pub enum Way {
    /// The engine for PKCS#11, which loads the module; the server is given URIs.
    Engine,
    /// The module itself, as a provider; the server is given PEM files.
    Provider,
}

/// How a server's process shows the daemon that it may use private keys.
#[derive(Clone, Copy)]
pub enum Login {
    /// With the pool's PIN, which OpenSSL's side reads from a file.
    Pin,
    /// By its user, on a listener of its own.
    Peer,
}

/// The engine has to be initialised by it: nginx does not do that.
const ENGINE: &str = "openssl_conf = init\n[init]\nengines = engines\n[engines]\npkcs11 = pkcs11\n[pkcs11]\ninit = 1\nMODULE_PATH = ";

const PROVIDER: &str = "openssl_conf = init\n[init]\nproviders = providers\n\
    [providers]\ndefault = default_provider\nhsmux = hsmux_provider\n\
    [default_provider]\nactivate = 1\n[hsmux_provider]\nactivate = 1\n";

impl Way {
    /// Writes `openssl.cnf`; the socket is `web.sock`.
    pub fn write_configuration(self, rig: &Rig) {
        let module = rig.module();
        let module = module.display();
        let text = match self {
            Self::Engine => format!("{ENGINE}{module}\n"),
            Self::Provider => {
                let socket = rig.path("web.sock");
                format!(
                    "{PROVIDER}module = {module}\nsocket = {}\n",
                    socket.display()
                )
            }
        };
        fs::write(rig.path("openssl.cnf"), text).expect("write openssl.cnf");
    }

    /// What a server's configuration has for a key: its URI, or a file with its certificate, `server/NAME.pem`.
    pub fn key(self, rig: &Rig, key: &str, login: Login) -> String {
        let separator = match self {
            // Of libp11, which wants no '?'.
            Self::Engine => ';',
            Self::Provider => '?',
        };
        let pin = match login {
            Login::Pin => {
                let file = rig.path("pool.pin");
                format!("{separator}pin-source=file:{}", file.display())
            }
            Login::Peer => String::new(),
        };
        let uri = format!("pkcs11:token=web;object={key};type=private{pin}");
        match self {
            Self::Engine => uri,
            Self::Provider => {
                let name = format!("{key}.pem");
                write_file(rig, &format!("server/{name}"), key, &uri);
                name
            }
        }
    }
}

/// Writes a PEM file with the certificate of one key, and a reference to what a URI names.
pub fn write_file(rig: &Rig, file: &str, certificate: &str, uri: &str) {
    let certificate = fs::read_to_string(rig.path(&format!("{certificate}.pem")));
    let reference = rig.hsmux("key reference").arg(uri).ok().out;
    let both = certificate.expect("a certificate") + &reference;
    fs::write(rig.path(file), both).expect("write a PEM file");
}
