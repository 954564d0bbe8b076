//! A daemon with a broker on a port that the system has chosen.

use hsmux_suite::{PATIENCE, Rig, Run, Setup, source, until};
use serde_json::Value;

use crate::connection::Connection;

/// A rig whose daemon has a `[broker]`, and a client of it.
pub struct Broker {
    /// The tokens and the daemon.
    pub rig: Rig,
    /// `http://127.0.0.1:PORT`
    pub url: String,
    /// What a client of the name `app` shows.
    pub token: String,
    starts: usize,
}

/// The name `app` may do everything with keys of its own.
const BROKER: &str = r#"
[broker]
listen = ["127.0.0.1:0"]
max_body = 65536

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]
"#;

/// The same with `/metrics` open to everybody, and with no limit of its own.
pub const METERED: &str = r#"
[broker]
listen = ["127.0.0.1:0"]
metrics = true

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]
"#;

/// Keys of others too, for `app`.
pub const OTHERS: &str = r#"
[[policy]]
clients = ["token:app"]
keys = ["label:*"]
allow = ["*"]
"#;

/// A client that Debian does not have: where `scripts/clients.sh` has put it, now or before.
pub fn fetched(client: &str) -> String {
    let script = source().join("scripts/clients.sh");
    let done = Run::new(script).arg(client).limit(900).ok();
    done.out.trim().to_owned()
}

impl Broker {
    /// So many empty SoftHSM tokens behind it.
    pub fn start(members: usize) -> Self {
        Self::start_with(members, "")
    }

    /// The same with more of a configuration.
    pub fn start_with(members: usize, more: &str) -> Self {
        Self::over(Rig::empty(Setup::Daemon, members), more)
    }

    /// The same over a rig that is not started yet.
    pub fn over(rig: Rig, more: &str) -> Self {
        Self::of(rig, &format!("{BROKER}{more}"))
    }

    /// Waits until its client is known: a token that was just made is, a moment later.
    pub fn known(self) -> Self {
        until("the client is known", PATIENCE, || {
            let mut connection = Connection::tcp(&self.url);
            let answer = connection.ask("GET", "/v1/transit/keys/app-none", &self.token, "");
            answer.ok().filter(|answer| answer.status != 403)
        });
        self
    }

    /// The same with these sections of the configuration and no others.
    pub fn of(mut rig: Rig, sections: &str) -> Self {
        rig.config.module.push('\n');
        rig.config.module.push_str(sections);
        rig.start();
        let mut broker = Self {
            rig,
            url: String::new(),
            token: String::new(),
            starts: 0,
        };
        broker.find();
        let token = broker.rig.hsmux("token-auth create app").ok();
        token.out.trim().clone_into(&mut broker.token);
        broker
    }

    /// Starts the daemon again, and waits for all members.
    pub fn start_again(&mut self) {
        self.rig.start();
        self.find();
    }

    /// The same by a command of the test's own.
    pub fn start_again_by(&mut self, run: Run) {
        self.rig.write_config();
        self.rig.start_by(run);
        self.rig.wait_for_members(self.rig.config.members.len());
        self.find();
    }

    /// Where it listens now: the log of all starts says it once for each.
    pub fn find(&mut self) {
        self.starts += 1;
        let daemon = self.rig.daemon.as_ref().expect("a daemon");
        self.url = until("the broker listens", PATIENCE, || {
            let log = daemon.log();
            let said = log.split("addresses=[").nth(self.starts)?;
            let (address, _) = said.split_once(']')?;
            Some(format!("http://{address}"))
        });
    }

    /// How many operations of callers the tokens have answered.
    pub fn served(&self) -> u64 {
        let status = self.rig.status();
        let members = status["members"].as_array().expect("members");
        let served = members
            .iter()
            .filter_map(|member| member["served"].as_u64());
        served.sum()
    }

    /// A number of `/metrics`, which has to be open to everybody; 0 where there is none.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.rig.run("curl").args("--silent --fail");
        let page = page.arg(format!("{}/metrics", self.url)).ok().out;
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.trim().parse().ok())
            .unwrap_or(0.0)
    }

    /// A request: the status, and the answer's JSON (null where there is none).
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.ask_as(&self.token, method, path, body)
    }

    /// The same with another token.
    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let done = self.curl(token, method, path, body, "--write-out \\n%{http_code}");
        let (json, status) = done.rsplit_once('\n').expect("a status");
        let status = status.trim().parse().expect("a status");
        let json = serde_json::from_str(json).unwrap_or(Value::Null);
        (status, json)
    }

    /// What curl says of a request, with more of its options.
    pub fn curl(&self, token: &str, method: &str, path: &str, body: &str, more: &str) -> String {
        let curl = self.rig.run("curl").args("--silent --show-error --globoff");
        let curl = curl.args(more).arg("--request").arg(method);
        let done = curl
            .arg("--header")
            .arg(format!("X-Vault-Token: {token}"))
            .args("--data-binary @-")
            .arg(format!("{}/v1/transit/{path}", self.url))
            .input(body)
            .ok();
        done.out
    }

    /// A request that has to be answered with 200 or 204: the answer's data.
    pub fn good(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, json) = self.ask(method, path, body);
        assert!(
            matches!(status, 200 | 204),
            "{method} {path}: {status} {json}"
        );
        json["data"].clone()
    }

    /// One that has to be refused so, with these words.
    pub fn refused(&self, method: &str, path: &str, body: &str, status: u16, words: &str) {
        let (found, json) = self.ask(method, path, body);
        let errors = json["errors"].to_string();
        assert_eq!(found, status, "{method} {path} {body}: {json}");
        assert!(errors.contains(words), "{method} {path} {body}: {errors}");
    }
}
