//! `hsmux node`: the daemon with a `[node]`, and certificates for hosts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use hsmux_node::ca::{Authority, Issued};
use humantime::parse_duration;
use serde_json::json;

use super::serve::Serve;
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux node`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    hsmux node                     # the daemon; without [node] it refuses to start\n  \
    hsmux node ca init             # the authority of all hosts, in the folder ca\n  \
    hsmux node enroll web1 --address 10.0.0.1\n  \
    hsmux node revoke web1\n\n\
    It offers this host's tokens to the hosts of each [[peer]], beside the sockets for PKCS#11, as hsmux\n\
    serve does wherever there is a [node]. SIGTERM and Ctrl+C end it when what runs is done."
)]
pub struct Node {
    #[command(subcommand)]
    act: Option<Act>,

    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand, Debug)]
enum Act {
    /// The authority that issues certificates for hosts
    #[command(subcommand)]
    Ca(Ca),
    /// Make a key and a certificate for a host
    Enroll(Enroll),
    /// List the certificates of hosts
    List(List),
    /// Take back the certificates of a host
    Revoke(Revoke),
}

#[derive(Subcommand, Debug)]
enum Ca {
    /// Make an authority in a new folder
    Init(Init),
}

/// Where the authority is.
#[derive(Args, Debug)]
struct At {
    /// The authority's folder
    #[arg(long, value_name = "FOLDER", default_value = "ca")]
    ca: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux node ca init --ca /root/ca --name 'web cluster'\n\n\
    The folder has the private key, ca.key: keep it where no host of the cluster is reached from. What every\n\
    host gets is put beside its certificate by hsmux node enroll.")]
struct Init {
    #[command(flatten)]
    at: At,

    /// What its certificates say
    #[arg(long, default_value = "hsmux nodes")]
    name: String,

    /// How long it lives
    #[arg(long, value_name = "TIME", default_value = "3650d", value_parser = parse_duration)]
    life: Duration,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux node enroll web1\n  \
    hsmux node enroll web1 --address web1.example --address 10.0.0.1 --life 90d --out web1-2027\n\n\
    The new folder has node.pem, node.key, ca.pem and revoked.pem: copy it to the host and name the four\n\
    files in its [node]. A certificate is renewed by another one, before it ends.")]
struct Enroll {
    /// The host's name, as others have it in [[peer]] and as `name` of a [[token]]
    name: String,

    /// A further name or IP address that its certificate says
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,

    /// How long the certificate is good; it ends with the authority's at the latest
    #[arg(long, value_name = "TIME", default_value = "397d", value_parser = parse_duration)]
    life: Duration,

    /// The new folder [default: the host's name]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    #[command(flatten)]
    at: At,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hsmux node list --ca /root/ca")]
struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux node revoke web1\n  \
    hsmux node revoke 5f0c3b9a71d2e8460a1b2c3d4e5f6071\n\n\
    It writes revoked.pem anew. Every host that has the new list, in the place that `revoked` in its [node]\n\
    names, ends the connections of the revoked one within a second and takes no new ones.")]
struct Revoke {
    /// The host's name, for all its certificates, or the serial number of one
    which: String,

    #[command(flatten)]
    at: At,
}

impl Node {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.act {
            Some(Act::Ca(Ca::Init(init))) => init.run(context),
            Some(Act::Enroll(enroll)) => enroll.run(context),
            Some(Act::List(list)) => list.run(context),
            Some(Act::Revoke(revoke)) => revoke.run(context),
            None if context.load()?.node.is_none() => {
                let file = context.file();
                let message = format!(
                    "{}: there is no [node]; add it with listen = [\"0.0.0.0:7443\"] and the files that \
                     hsmux node enroll makes",
                    file.display()
                );
                Err(Exit::Usage.because(message))
            }
            None => self.serve.run(context),
        }
    }

    /// Whether it is the daemon, and not a command about certificates.
    pub fn serves(&self) -> bool {
        self.act.is_none()
    }
}

impl Init {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = &self.at.ca;
        Authority::init(folder, &self.name, self.life)?;
        if context.json {
            output::json(&json!({ "folder": folder, "certificate": folder.join("ca.pem") }))?;
        } else {
            println!("{}: an authority; ca.key stays there", folder.display());
        }
        Ok(Exit::Done)
    }
}

impl Enroll {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = self.out.unwrap_or_else(|| PathBuf::from(&self.name));
        let authority = Authority::open(&self.at.ca)?;
        let enrolled = authority.enroll(&self.name, &self.address, self.life, &folder)?;
        let Issued {
            name,
            serial,
            until,
            ..
        } = &enrolled.issued;
        if context.json {
            let folder = &enrolled.folder;
            output::json(&json!({ "folder": folder, "certificate": enrolled.issued }))?;
        } else {
            let folder = enrolled.folder.display();
            println!("{folder}: node.pem, node.key, ca.pem, revoked.pem");
            println!(
                "{name}, serial number {serial}, good until {}",
                output::time(*until)
            );
        }
        Ok(Exit::Done)
    }
}

impl List {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let issued = Authority::open(&self.at.ca)?.issued()?;
        if context.json {
            output::json(&issued)?;
            return Ok(Exit::Done);
        }
        let row = |issued: &Issued| {
            vec![
                issued.name.clone(),
                issued.serial.clone(),
                output::time(issued.until),
                issued.revoked.map_or_else(|| "-".into(), output::time),
            ]
        };
        output::table(
            &["name", "serial", "until", "revoked"],
            issued.iter().map(row),
        );
        Ok(Exit::Done)
    }
}

impl Revoke {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let revoked = Authority::open(&self.at.ca)?.revoke(&self.which)?;
        let list = revoked.list.display();
        if context.json {
            let certificates = &revoked.certificates;
            output::json(&json!({ "list": revoked.list, "certificates": certificates }))?;
            return Ok(Exit::Done);
        }
        for issued in &revoked.certificates {
            println!("revoked {} {}", issued.name, issued.serial);
        }
        if revoked.certificates.is_empty() {
            println!("{}: was revoked before", self.which);
        }
        println!("{list}: copy it to every host, where `revoked` in its [node] says");
        Ok(Exit::Done)
    }
}
