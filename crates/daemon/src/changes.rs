//! Changes by another configuration, while the daemon runs or at its next start.

use std::path::Path;

use hsmux_config::{
    Allowed, BrokerSection, Config, Limits, Mistake, NewErrors, PoolSection, StartedBy,
};
use hsmux_token::{Error, Kind, Result};

use crate::services::{BROKER, GATEWAY, NODE, as_written, started_by};

/// Reads a configuration; all its mistakes are in the error.
pub fn load(file: &Path) -> Result<Config> {
    hsmux_config::load(file).map_err(|mistakes| refused(&mistakes))
}

/// The same for a daemon that runs: what the file names has to be there, unless that is missing already. The other
/// answer is what is wrong with sites, which the gateway goes on without.
pub fn load_to_replace(running: &Config, file: &Path) -> Result<(Config, Vec<Mistake>)> {
    let config = load(file)?;
    let NewErrors { mut all, of_sites } = hsmux_config::new_errors(&config, running);
    if all.is_empty() {
        return Ok((config, of_sites));
    }
    all.extend(of_sites);
    Err(refused(&all))
}

/// The error of sites that were not taken over; `lines` says what was.
pub fn without_sites(mistakes: &[Mistake], lines: &[String]) -> Error {
    let said = refused(mistakes);
    let others = match lines {
        [] => "nothing else has changed".to_owned(),
        lines => format!("all else was taken over: {}", lines.join("; ")),
    };
    let message = format!(
        "{said}\nsites that name what is not there are served as before, or not at all if they are new; {others}"
    );
    Error::pool(Kind::Invalid, message)
}

/// [`Kind::Invalid`]: `hsmux reload` tells mistakes from other failures.
fn refused(mistakes: &[Mistake]) -> Error {
    let lines: Vec<_> = mistakes.iter().map(Mistake::to_string).collect();
    Error::pool(Kind::Invalid, lines.join("\n"))
}

/// The configuration of the file as it can be taken over now: what is settled at the start stays as it was.
pub fn what_can_change(old: &Config, file: &Config) -> Config {
    let mut new = file.clone();
    new.pool = PoolSection {
        read_only: file.pool.read_only,
        ..old.pool.clone()
    };
    new.state.clone_from(&old.state);
    new.worker.clone_from(&old.worker);
    new.audit.file.clone_from(&old.audit.file);
    let allow_users = std::mem::take(&mut new.admin.socket.allow_users);
    new.admin = old.admin.clone();
    new.admin.socket.allow_users = allow_users;
    new.gateway.clone_from(&old.gateway);
    if let (Some(new), Some(file)) = (&mut new.gateway, &file.gateway) {
        new.sites.clone_from(&file.sites);
        new.access_log.clone_from(&file.access_log);
    }
    new.broker.clone_from(&old.broker);
    if let (Some(new), Some(file)) = (&mut new.broker, &file.broker) {
        *new = broker(new, file);
    }
    // Without the section no host is let in, from now on.
    if let Some(node) = &mut new.node {
        let started = old.node.as_ref();
        node.listen = started.map_or_else(Vec::new, |node| node.listen.clone());
        node.connections = started.map_or(node.connections, |node| node.connections);
        node.started_by = started.map_or_else(StartedBy::default, |node| node.started_by);
        node.user = started.and_then(|node| node.user.clone());
    }
    new
}

/// The configuration after a start of this service, which has read its section as it was `sent`. What starts it is
/// settled at the daemon's start.
pub fn with_service(old: &Config, service: &str, sent: &Config) -> Config {
    let written = as_written(sent);
    let starter = started_by(service, old);
    let mut new = old.clone();
    take_section(&mut new, service, written);
    if let Some(broker) = new.broker.as_mut().filter(|_| service == BROKER) {
        broker.started_by = starter;
    }
    if let Some(gateway) = new.gateway.as_mut().filter(|_| service == GATEWAY) {
        gateway.started_by = starter;
    }
    if let Some(node) = new.node.as_mut().filter(|_| service == NODE) {
        node.started_by = starter;
    }
    if sent.text != old.text {
        // A later reload changed it while it started.
        let later = what_can_change(&new, &as_written(old));
        take_section(&mut new, service, later);
    }
    new
}

fn take_section(config: &mut Config, service: &str, from: Config) {
    match service {
        BROKER => config.broker = from.broker,
        GATEWAY => config.gateway = from.gateway,
        _ => config.node = from.node,
    }
}

/// The broker that runs, with what it takes over.
fn broker(old: &BrokerSection, file: &BrokerSection) -> BrokerSection {
    let tls = old.tls.as_ref().and(file.tls.as_ref());
    BrokerSection {
        tls: tls.or(old.tls.as_ref()).cloned(),
        limits: Limits {
            connections: old.limits.connections,
            ..file.limits.clone()
        },
        jwt: file.jwt.clone(),
        metrics: file.metrics,
        access_log: file.access_log.clone(),
        policies: file.policies.clone(),
        ..old.clone()
    }
}

/// The changes that are in effect. Listeners, members and traces report theirs themselves.
pub fn taken_over(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |differs: bool, line: &str| lines.extend(differs.then(|| line.to_owned()));
    if let (Some(old), Some(new)) = (&old.gateway, &new.gateway) {
        let line = "[[site]] changed: the gateway takes it over within a second; its log says if it cannot";
        say(old.sites != new.sites, line);
        let line = "[gateway] access_log changed";
        say(old.access_log != new.access_log, line);
    }
    if let (Some(old), Some(new)) = (&old.broker, &new.broker) {
        say(old.policies != new.policies, "[[policy]] changed");
        say(old.limits != new.limits, "[[limit]] changed");
        let others = (&old.tls, &old.jwt, old.metrics, &old.access_log)
            != (&new.tls, &new.jwt, new.metrics, &new.access_log);
        say(others, "[broker] changed");
    }
    let identity = |config: &Config| config.node.as_ref().map(|node| node.identity.clone());
    say(identity(old) != identity(new), "[node] changed");
    say(old.audit != new.audit, "[audit] changed");
    say(old.admin != new.admin, "[admin] allow_users changed");
    say(
        old.module != new.module,
        "[module] changed: programs that start from now on have it",
    );
    lines.extend(peers(old, new));
    lines
}

/// The sections of the file that only the next start takes over, of a service or of the daemon.
pub fn with_a_restart(new: &Config, file: &Config) -> Vec<String> {
    let both = |name, has: fn(&Config) -> bool| {
        has(new) && has(file) && started_by(name, new) == started_by(name, file)
    };
    let services = [
        (
            new.gateway != file.gateway,
            GATEWAY,
            both(GATEWAY, |config| config.gateway.is_some()),
        ),
        (
            new.broker != file.broker,
            BROKER,
            both(BROKER, |config| config.broker.is_some()),
        ),
        (
            new.node != file.node,
            NODE,
            both(NODE, |config| {
                let node = config.node.as_ref();
                node.is_some_and(|node| !node.listen.is_empty())
            }),
        ),
    ];
    let services = services.into_iter().filter(|(differs, ..)| *differs);
    let (run, others): (Vec<_>, Vec<_>) = services.partition(|(.., runs)| *runs);
    let sections = [
        (new.pool != file.pool, "[pool]"),
        (new.state != file.state, "[daemon] state"),
        (new.worker != file.worker, "[daemon] worker"),
        (new.audit != file.audit, "[audit] file"),
        (new.admin != file.admin, "[admin] socket"),
    ];
    let differ = sections.iter().filter(|(differs, _)| *differs);
    let mut names: Vec<_> = differ.map(|(_, name)| (*name).to_owned()).collect();
    names.extend(others.iter().map(|(_, name, _)| format!("[{name}]")));
    let names = (!names.is_empty()).then(|| names.join(", "));
    let of_daemon = names.map(|names| format!("{names} changed: this needs a restart"));
    let of_services = run.iter().map(|(_, name, _)| {
        let command = match started_by(name, new) {
            StartedBy::Daemon => format!("hsmux restart {name}"),
            StartedBy::Systemd => format!("systemctl restart hsmux-{name}"),
        };
        format!("[{name}] changed: {command} applies it")
    });
    of_daemon.into_iter().chain(of_services).collect()
}

/// Hosts that may use this one's tokens.
fn peers(old: &Config, new: &Config) -> Vec<String> {
    let all = |config: &'_ Config| {
        let peers = config.node.iter().flat_map(|node| node.peers.clone());
        peers.collect::<Vec<_>>()
    };
    let (old, new) = (all(old), all(new));
    let mut lines = Vec::new();
    for peer in &new {
        match old.iter().find(|other| other.name == peer.name) {
            None => lines.push(format!("peer {} added", peer.name)),
            Some(other) if other != peer => lines.push(format!("peer {} changed", peer.name)),
            Some(_) => {}
        }
    }
    let stays = |peer: &Allowed| new.iter().any(|other| other.name == peer.name);
    let gone = old.iter().filter(|peer| !stays(peer));
    lines.extend(gone.map(|peer| format!("peer {} removed", peer.name)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_config::parse;

    const FILE: &str = r#"[pool]
label = "web"
[daemon]
pin = { file = "pool.pin" }
[admin]
allow_users = [33]
[module]
mode = "daemon"
[audit]
file = "audit.log"
keys = false
[[token]]
module = "/usr/lib/softhsm/libsofthsm2.so"
uri = "pkcs11:token=hsm1"
pin = { file = "hsm1.pin" }
[broker]
listen = ["127.0.0.1:8200"]
store = "broker.sqlite"
[[policy]]
clients = ["token:ci"]
keys = ["app-*"]
allow = ["sign"]
[gateway]
listen = ["127.0.0.1:443"]
[[site]]
certificates = ["a.pem"]
root = "www"
[node]
listen = ["127.0.0.1:9"]
certificate = "node.pem"
key = "node.key"
ca = "ca.pem"
[[peer]]
name = "b"
"#;

    fn read(text: &str) -> Config {
        parse(Path::new("/etc/hsmux/hsmux.toml"), text)
            .unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
    }

    /// What a reload says where this line is another one.
    fn after(line: &str, other: &str) -> Vec<String> {
        assert!(FILE.contains(line), "{line}");
        let (old, file) = (read(FILE), read(&FILE.replace(line, other)));
        let new = what_can_change(&old, &file);
        let mut lines = taken_over(&old, &new);
        lines.extend(with_a_restart(&new, &file));
        lines
    }

    #[test]
    fn what_is_taken_over_is_named() {
        assert_eq!(after("web", "web"), [""; 0]);
        for (line, other, said) in [
            ("\"www\"", "\"w3\"", "[[site]] changed: "),
            ("\"app-*\"", "\"app\"", "[[policy]] changed"),
            ("keys = false", "keys = true", "[audit] changed"),
            (
                "127.0.0.1:443\"]",
                "127.0.0.1:443\"]\naccess_log = \"journal\"",
                "[gateway] access_log changed",
            ),
            (
                "[broker]",
                "[broker]\naccess_log = \"journal\"",
                "[broker] changed",
            ),
            ("[33]", "[34]", "[admin] allow_users changed"),
            (
                "mode = \"daemon\"",
                "mode = \"embedded\"",
                "[module] changed: ",
            ),
            ("\"ca.pem\"", "\"cb.pem\"", "[node] changed"),
            (
                "name = \"b\"",
                "name = \"b\"\nkeys = [\"pkcs11:object=x\"]",
                "peer b changed",
            ),
        ] {
            let lines = after(line, other);
            assert_eq!(lines.len(), 1, "{line}: {lines:?}");
            assert!(lines[0].starts_with(said), "{line}: {lines:?}");
        }
        let lines = after("name = \"b\"", "name = \"c\"");
        assert_eq!(lines, ["peer c added", "peer b removed"]);
    }

    #[test]
    fn a_restarted_service_has_read_its_section() {
        let (old, file) = (read(FILE), read(&FILE.replace(":443", ":444")));
        let new = what_can_change(&old, &file);
        assert_ne!(new.gateway, file.gateway);
        assert_eq!(with_service(&new, NODE, &new).gateway, old.gateway);
        let restarted = with_service(&new, GATEWAY, &new);
        assert_eq!(restarted.gateway, file.gateway);
        assert_eq!(with_a_restart(&restarted, &file), [""; 0]);
    }

    #[test]
    fn a_reload_during_a_start_is_taken_over_in_part() {
        let (sent, file) = (
            read(&FILE.replace(":443", ":444")),
            read(&FILE.replace(":443", ":445").replace("\"www\"", "\"w3\"")),
        );
        let new = what_can_change(&what_can_change(&read(FILE), &sent), &file);
        let started = with_service(&new, GATEWAY, &sent);
        let gateway = started.gateway.as_ref().expect("a gateway");
        let expected = sent.gateway.as_ref().expect("a gateway");
        assert_eq!(gateway.listen, expected.listen);
        assert_eq!(
            gateway.sites,
            file.gateway.as_ref().expect("a gateway").sites
        );
        let said = "[gateway] changed: hsmux restart gateway applies it";
        assert_eq!(with_a_restart(&started, &file), [said]);
    }

    #[test]
    fn a_restarted_service_is_started_by_the_same() {
        for service in [BROKER, GATEWAY, NODE] {
            let section = format!("[{service}]");
            let unit = format!("{section}\nstarted_by = \"systemd\"");
            let (old, file) = (read(FILE), read(&FILE.replace(&section, &unit)));
            let new = what_can_change(&old, &file);
            let restarted = with_service(&new, service, &new);
            assert_eq!(started_by(service, &restarted), StartedBy::Daemon);
            let said = format!("{section} changed: this needs a restart");
            assert_eq!(with_a_restart(&restarted, &file), [said]);
        }
    }

    #[test]
    fn what_needs_a_restart_is_named_each_time() {
        for (line, other, section) in [
            ("\"web\"", "\"other\"", "[pool]"),
            (
                "[daemon]",
                "[daemon]\nstate = \"elsewhere\"",
                "[daemon] state",
            ),
            ("[admin]", "[admin]\nmode = \"0666\"", "[admin] socket"),
            ("audit.log", "other.log", "[audit] file"),
        ] {
            let said = format!("{section} changed: this needs a restart");
            assert_eq!(after(line, other), [said], "{line}");
        }
        for (line, other, service) in [
            (":443", ":444", "gateway"),
            (":8200", ":8201", "broker"),
            ("[broker]", "[broker]\nconnections = 500", "broker"),
            (":9\"", ":10\"", "node"),
        ] {
            let said = format!("[{service}] changed: hsmux restart {service} applies it");
            assert_eq!(after(line, other), [said], "{line}");
        }
        let unit = FILE.replace("[gateway]", "[gateway]\nstarted_by = \"systemd\"");
        let new = what_can_change(&read(&unit), &read(&unit.replace(":443", ":444")));
        let said = "[gateway] changed: systemctl restart hsmux-gateway applies it";
        assert_eq!(
            with_a_restart(&new, &read(&unit.replace(":443", ":444"))),
            [said]
        );
        for section in ["[gateway]", "[node]"] {
            let other = format!("{section}\nstarted_by = \"systemd\"");
            let said = format!("{section} changed: this needs a restart");
            assert_eq!(after(section, &other), [said]);
        }
        let broker = FILE.find("[broker]").expect("a section");
        let gateway = FILE.find("[gateway]").expect("a section");
        let said = "[pool], [broker] changed: this needs a restart";
        assert_eq!(after(&FILE[broker..gateway], ""), [said]);
        // A host is served no more at once; the sockets are there until the end.
        let node = FILE.find("[node]").expect("a section");
        let lines = after(&FILE[node..], "");
        assert_eq!(lines, ["[node] changed", "peer b removed"]);
    }
}
