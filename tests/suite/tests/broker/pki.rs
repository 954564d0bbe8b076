//! Certificates and keys, made by openssl.

use std::path::PathBuf;

use hsmux_suite::Rig;

/// A certificate authority with files of its name in the rig's folder.
pub struct Authority(&'static str);

/// Long before and long after any test.
pub const ALWAYS: (&str, &str) = ("20200101000000Z", "20990101000000Z");

impl Authority {
    /// A new one: `NAME.pem`, `NAME.key`.
    pub fn new(rig: &Rig, name: &'static str) -> Self {
        let config = format!(
            "[ca]\ndefault_ca = here\n[here]\ndatabase = {name}.index\nnew_certs_dir = .\nrand_serial = yes\n\
             default_md = sha256\npolicy = any\ncopy_extensions = copy\nunique_subject = no\n\
             [any]\ncommonName = optional\n"
        );
        let write = |end: &str, text: &str| {
            std::fs::write(rig.path(&format!("{name}.{end}")), text).expect("write a file");
        };
        write("cnf", &config);
        write("index", "");
        rig.run("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650")
            .args(&format!(
                "-keyout {name}.key -out {name}.pem -subj /CN={name}"
            ))
            .ok();
        Self(name)
    }

    /// A certificate `FILE.pem` with its key `FILE.key`, for a name of the form `DNS:...` or `IP:...`.
    pub fn issue(&self, rig: &Rig, file: &str, name: &str, when: (&str, &str)) {
        self.issue_to(rig, file, &format!("/CN={file}"), name, when);
    }

    /// The same with this subject, which may be empty: `/`.
    pub fn issue_to(
        &self,
        rig: &Rig,
        file: &str,
        subject: &str,
        name: &str,
        (from, until): (&str, &str),
    ) {
        rig.run("openssl")
            .args("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes")
            .args(&format!(
                "-keyout {file}.key -out {file}.csr -subj {subject}"
            ))
            .args(&format!("-addext subjectAltName={name}"))
            .ok();
        let ca = self.0;
        rig.run("openssl")
            .args(&format!(
                "ca -batch -notext -config {ca}.cnf -cert {ca}.pem -keyfile {ca}.key"
            ))
            .args(&format!(
                "-in {file}.csr -out {file}.pem -startdate {from} -enddate {until}"
            ))
            .ok();
    }

    /// Its certificate.
    pub fn certificate(&self, rig: &Rig) -> PathBuf {
        rig.path(&format!("{}.pem", self.0))
    }
}
