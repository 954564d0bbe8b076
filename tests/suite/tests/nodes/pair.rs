//! Two hosts with the same keys: `web1` uses the tokens of `web2`.

use std::fs;
use std::path::Path;

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

use crate::cable::Cable;

/// Two daemons, and what is between them.
pub struct Pair {
    /// `web1`; the authority is in its folder `ca`.
    pub user: Rig,
    /// `web2`, which offers its tokens.
    pub node: Rig,
    /// From `web1` to `web2`.
    pub cable: Cable,
    /// Lines of the user's member.
    pub member: String,
    /// The sections of the node's peers.
    pub peers: String,
    /// Further lines of the node's `[node]`.
    pub more: String,
}

/// The files that `hsmux node enroll` makes, in a folder `node`.
pub const FILES: &str = "certificate = \"node/node.pem\"\nkey = \"node/node.key\"\n\
                         ca = \"node/ca.pem\"\nrevoked = \"node/revoked.pem\"";

impl Pair {
    /// Hosts with so many tokens of their own; none runs yet.
    pub fn prepare(users: usize, nodes: usize) -> Self {
        let node = Rig::prepare(Setup::Daemon, nodes.max(1));
        let user = Rig::empty(Setup::Daemon, users);
        for member in &user.config.members {
            user.softhsm.import(&member.label, &node.keys);
        }
        user.hsmux("node ca init --name cluster").ok();
        user.hsmux("node enroll web1 --out node").ok();
        let into = node.path("node").display().to_string();
        user.hsmux("node enroll web2").arg("--out").arg(into).ok();
        Self {
            user,
            node,
            cable: Cable::lay(),
            member: "name = \"web2\"".to_owned(),
            peers: "[[peer]]\nname = \"web1\"".to_owned(),
            more: String::new(),
        }
    }

    /// Both run, and the user has its own members and `web2`.
    pub fn start(users: usize, nodes: usize) -> Self {
        let mut pair = Self::prepare(users, nodes);
        pair.start_node();
        pair.start_user();
        pair.user.wait_for_members(users + 1);
        pair
    }

    /// Starts `web2`, waits for its tokens, and leads the cable there.
    pub fn start_node(&mut self) {
        self.write_node();
        let address = address_after(&mut self.node, Rig::start);
        self.cable.lead_to(&address);
    }

    /// The same where its tokens may come later.
    pub fn start_node_alone(&mut self) {
        self.write_node();
        let address = address_after(&mut self.node, Rig::start_daemon);
        self.cable.lead_to(&address);
    }

    /// Writes the configuration of `web2`.
    pub fn write_node(&mut self) {
        let (more, peers) = (&self.more, &self.peers);
        self.node.config.module =
            format!("\n[node]\nlisten = [\"127.0.0.1:0\"]\n{FILES}\n{more}\n{peers}\n");
        self.node.write_config();
    }

    /// Starts `web1`; its members may come later.
    pub fn start_user(&mut self) {
        let (cable, member) = (self.cable.address(), &self.member);
        self.user.config.module =
            format!("\n[node]\n{FILES}\n[[token]]\nnode = \"{cable}\"\n{member}\n");
        self.user.start_daemon();
    }

    /// What `web1` says of its member `web2`.
    pub fn member(&self) -> Value {
        member(&self.user, "web2")
    }

    /// Waits until `web2` does not serve, and says why.
    pub fn wait_for_reason(&self, reason: &str) {
        until(&format!("{reason:?} of web2"), PATIENCE, || {
            let member = self.member();
            let told = member["reason"].as_str().unwrap_or_default();
            (member["in_service"] == 0 && told.contains(reason)).then_some(())
        });
    }

    /// Waits until both have so much in their logs.
    pub fn wait_for_logs(&mut self, user: &str, node: &str) {
        self.user.daemon.as_mut().expect("a daemon").wait_for(user);
        self.wait_for_log_of_node(node);
    }

    /// Waits until `web2` has so much in its log.
    pub fn wait_for_log_of_node(&mut self, text: &str) {
        self.node.daemon.as_mut().expect("a daemon").wait_for(text);
    }
}

/// Where the daemon of a rig offers its tokens.
pub fn listens(rig: &Rig) -> String {
    listens_after(rig, 0)
}

/// Starts the daemon of a rig, again perhaps: answers where it offers its tokens now.
pub fn address_after(rig: &mut Rig, start: impl FnOnce(&mut Rig)) -> String {
    // The log goes on from one daemon to the next.
    let log = fs::metadata(rig.path("daemon.log"));
    let before = log.map_or(0, |log| log.len() as usize);
    start(rig);
    listens_after(rig, before)
}

fn listens_after(rig: &Rig, before: usize) -> String {
    until("the node serves", PATIENCE, || {
        let log = fs::read_to_string(rig.path("daemon.log")).ok()?;
        let (_, said) = log
            .get(before..)?
            .rsplit_once("the node serves addresses=[")?;
        Some(said.split_once(']')?.0.to_owned())
    })
}

/// What `hsmux status` says of a member.
pub fn member(rig: &Rig, name: &str) -> Value {
    let status = rig.status();
    let members = status["members"].as_array().expect("members");
    let found = members.iter().find(|member| member["name"] == *name);
    found.expect("the member").clone()
}

/// Programs that sign all the time, each signature verified.
pub struct Load(Caller);

impl Load {
    /// Four threads of one program.
    pub fn start(rig: &Rig) -> Self {
        let mut program = Caller::open(rig);
        program.ok("start_load", json!({"threads": 4}));
        Self(program)
    }

    /// How many signatures there were so far.
    pub fn signed(&mut self) -> u64 {
        let progress = self.0.ok("progress", json!({}));
        progress["signed"].as_u64().expect("a number")
    }

    /// Waits for some more.
    pub fn goes_on(&mut self) {
        let before = self.signed();
        until("more signatures", PATIENCE, || {
            (self.signed() > before + 20).then_some(())
        });
    }

    /// Ends it; no request has failed.
    pub fn nothing_failed(mut self) {
        let load = self.0.ok("stop_load", json!({}));
        assert_eq!(load["failed"], json!({}), "{load}");
        assert!(load["signed"].as_u64() > Some(0), "{load}");
    }
}

/// Copies files of a new certificate over those of a host, as an administrator does.
pub fn install(rig: &Rig, from: &Path) {
    for file in ["node.key", "node.pem", "ca.pem", "revoked.pem"] {
        put(&from.join(file), &rig.path("node").join(file));
    }
}

/// Puts the list of the authority, in a folder of one host, into another one's, as an administrator does.
pub fn install_list(authority: &Rig, rig: &Rig) {
    let list = authority.path("ca/revoked.pem");
    put(&list, &rig.path("node/revoked.pem"));
}

fn put(file: &Path, to: &Path) {
    let new = to.with_extension("new");
    fs::copy(file, &new).expect("copy a file");
    fs::rename(&new, to).expect("put it in place");
}
