//! `hsmux node request`, `enroll`, `list` and `revoke`: certificates of hosts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use hsmux_node::ca::{self, Authority, EnrollmentRequest, IssuedCertificate};
use hsmux_state::Timestamp;
use humantime::parse_duration;
use serde::Serialize;
use serde_json::json;

use super::authority::{AuthorityLocation, AuthoritySigning};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux node request web1\n  \
    hsmux node request web1 --out /etc/hsmux/node\n\n\
    The new folder has node.key, which stays on this host, and node.csr. Copy node.csr to the authority's host,\n\
    run hsmux node enroll web1 --csr node.csr there, and copy the three new files back into the folder.")]
pub struct NodeRequestCommand {
    /// The host's name, as others have it in [[peer]] and as `name` of a [[token]]
    name: String,

    /// The new folder [default: the host's name]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux node enroll web1\n  \
    hsmux node enroll web1 --address web1.example --address 10.0.0.1 --life 90d --out web1-2027\n  \
    hsmux node enroll web1 --csr web1.csr --out web1-signed\n\n\
    The new folder has node.pem, ca.pem and revoked.pem, and without --csr also node.key: copy them to the paths in\n\
    the host's [node]. To renew a certificate, issue another one before it expires.")]
pub struct Enroll {
    /// The host's name, as others have it in [[peer]] and as `name` of a [[token]]
    name: String,

    /// A further name or IP address for its certificate
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,

    /// The lifetime of the certificate; it ends with the authority's at the latest
    #[arg(long, value_name = "TIME", default_value = "397d", value_parser = parse_duration)]
    life: Duration,

    /// The host's own request, from hsmux node request [default: create the key here]
    #[arg(long, value_name = "FILE")]
    csr: Option<PathBuf>,

    /// The new folder [default: the host's name]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    #[command(flatten)]
    signing: AuthoritySigning,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hsmux node list --ca /root/ca")]
pub struct List {
    #[command(flatten)]
    at: AuthorityLocation,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux node revoke web1\n  \
    hsmux node revoke 5f0c3b9a71d2e8460a1b2c3d4e5f6071\n\n\
    It rewrites revoked.pem. Copy that to the path `revoked` of [node] on one host of the cluster; linked hosts\n\
    pass it on. With the new list a host ends connections of the revoked one, and refuses new ones.")]
pub struct Revoke {
    /// The host's name, for all its certificates, or the serial number of one
    which: String,

    #[command(flatten)]
    signing: AuthoritySigning,
}

impl NodeRequestCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = self.out.unwrap_or_else(|| PathBuf::from(&self.name));
        ca::request(&self.name, &folder)?;
        let request = folder.join("node.csr");
        if context.json {
            output::json(&json!({ "folder": folder, "request": request }))?;
        } else {
            println!(
                "{}: for the authority; node.key stays there",
                request.display()
            );
        }
        Ok(Exit::Done)
    }
}

impl Enroll {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = self.out.unwrap_or_else(|| PathBuf::from(&self.name));
        let csr = self.csr.as_ref();
        let csr =
            csr.map(|csr| std::fs::read_to_string(csr).with_context(|| csr.display().to_string()));
        let csr = csr.transpose()?;
        let wanted = EnrollmentRequest {
            name: &self.name,
            addresses: &self.address,
            life: self.life,
            request: csr.as_deref(),
        };
        let enrolled = self.signing.open(context)?.enroll(&wanted, &folder)?;
        let IssuedCertificate {
            name,
            serial,
            until,
            ..
        } = &enrolled.issued;
        if context.json {
            let folder = &enrolled.folder;
            let row = CertificateRow::from(&enrolled.issued);
            output::json(&json!({ "folder": folder, "certificate": row }))?;
        } else {
            let folder = enrolled.folder.display();
            let key = if csr.is_some() { "" } else { "node.key, " };
            println!("{folder}: node.pem, {key}ca.pem, revoked.pem");
            println!(
                "{name}, serial number {serial}, good until {}",
                Timestamp::from(*until)
            );
        }
        Ok(Exit::Done)
    }
}

impl List {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let issued = Authority::open(&self.at.ca)?.issued()?;
        if context.json {
            output::json(&rows(&issued))?;
            return Ok(Exit::Done);
        }
        let row = |issued: &IssuedCertificate| {
            let revoked = issued.revoked.map(Timestamp::from);
            vec![
                issued.name.clone(),
                issued.serial.clone(),
                Timestamp::from(issued.until).to_string(),
                revoked.map_or_else(|| "-".into(), |at| at.to_string()),
            ]
        };
        let columns = [
            output::Column::whole("NAME"),
            output::Column::whole("SERIAL"),
            output::Column::whole("UNTIL"),
            output::Column::whole("REVOKED"),
        ];
        output::table(&columns, issued.iter().map(row));
        Ok(Exit::Done)
    }
}

impl Revoke {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let revoked = self.signing.open(context)?.revoke(&self.which)?;
        let list = revoked.list.display();
        if context.json {
            let certificates = rows(&revoked.certificates);
            output::json(&json!({ "list": revoked.list, "certificates": certificates }))?;
            return Ok(Exit::Done);
        }
        for issued in &revoked.certificates {
            println!("revoked {} {}", issued.name, issued.serial);
        }
        if revoked.certificates.is_empty() {
            println!("{}: was revoked before", self.which);
        }
        println!(
            "{list}: copy it to one host, where `revoked` in its [node] says; hosts that are linked hand it on"
        );
        Ok(Exit::Done)
    }
}

/// A certificate in JSON.
#[derive(Serialize)]
struct CertificateRow<'a> {
    name: &'a str,
    serial: &'a str,
    since: Timestamp,
    until: Timestamp,
    revoked: Option<Timestamp>,
}

impl<'a> From<&'a IssuedCertificate> for CertificateRow<'a> {
    fn from(issued: &'a IssuedCertificate) -> Self {
        Self {
            name: &issued.name,
            serial: &issued.serial,
            since: issued.since.into(),
            until: issued.until.into(),
            revoked: issued.revoked.map(Timestamp::from),
        }
    }
}

fn rows(issued: &[IssuedCertificate]) -> Vec<CertificateRow<'_>> {
    issued.iter().map(CertificateRow::from).collect()
}
