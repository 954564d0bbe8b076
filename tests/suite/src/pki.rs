//! Certificates and keys, created by openssl.

use std::path::PathBuf;

use crate::Rig;

/// A certificate authority; its files in the rig's folder have its name.
pub struct Authority(&'static str);

/// Long before and long after any test.
pub const ALWAYS: (&str, &str) = ("20200101000000Z", "20990101000000Z");

impl Authority {
    /// Creates one: `NAME.pem`, `NAME.key`.
    pub fn new(rig: &Rig, name: &'static str) -> Self {
        let config = format!(
            "[ca]\ndefault_ca = here\n[here]\ndatabase = {name}.index\nnew_certs_dir = .\nrand_serial = yes\n\
             default_md = sha256\ndefault_crl_days = 30\npolicy = any\ncopy_extensions = copy\nunique_subject = no\n\
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

    /// Issues a certificate `FILE.pem` with its key `FILE.key`, for a name of the form `DNS:...` or `IP:...`.
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

    /// Revokes the certificate `FILE.pem`, on lists that are created from now on.
    pub fn revoke(&self, rig: &Rig, file: &str) {
        let revoke = rig.run("openssl").args(&self.ca());
        revoke.args(&format!("-revoke {file}.pem")).ok();
    }

    /// Creates its revocation list `FILE`, which expires after this number of seconds.
    pub fn list_for_seconds(&self, rig: &Rig, file: &str, seconds: u32) {
        let time = |when: &str| {
            let date = rig.run("date").args("-u +%Y%m%d%H%M%SZ -d").arg(when);
            date.ok().out.trim().to_owned()
        };
        let (now, then) = (time("now"), time(&format!("{seconds} seconds")));
        self.list(rig, file, Some((&now, &then)));
    }

    /// Creates its revocation list `FILE`; its validity is `when`, or thirty days.
    pub fn list(&self, rig: &Rig, file: &str, when: Option<(&str, &str)>) {
        let list = rig.run("openssl").args(&self.ca());
        let when = when.map_or_else(String::new, |(from, until)| {
            format!(" -crl_lastupdate {from} -crl_nextupdate {until}")
        });
        list.args(&format!("-gencrl -out {file}.new{when}")).ok();
        // By rename, so that readers get the whole list.
        std::fs::rename(rig.path(&format!("{file}.new")), rig.path(file)).expect("a new list");
    }

    fn ca(&self) -> String {
        let ca = self.0;
        format!("ca -batch -config {ca}.cnf -cert {ca}.pem -keyfile {ca}.key")
    }

    /// Its certificate.
    pub fn certificate(&self, rig: &Rig) -> PathBuf {
        rig.path(&format!("{}.pem", self.0))
    }
}
