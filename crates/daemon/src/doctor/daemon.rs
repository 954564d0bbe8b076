//! The daemon as it runs: its members and its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use hsmux_config::Config;
use hsmux_pool::{DebtStatus, ObjectStatus};
use hsmux_token::{Error, Kind, Result};

use super::{Finding, Level, shown};
use crate::admin::{AdminClient, AdminRequest, AdminResponse, KeyRow, MemberStatus};
use crate::lock::StateLock;
use crate::services::{ServiceState, ServiceStatus};

/// Asks the daemon.
pub fn examine(config: &Config) -> Vec<Finding> {
    let client = match AdminClient::of(config) {
        Ok(client) => client,
        Err(error) => {
            let held = StateLock::is_held(&config.state);
            let mut findings = vec![unreachable(config, &error, &held)];
            if matches!(held, Ok(false)) {
                findings.extend(addresses(config).filter_map(|(key, at)| taken(key, at)));
            }
            return findings;
        }
    };
    let ask = |request| match client.ask(&request) {
        Ok(response) => Some(response),
        Err(failure) => {
            tracing::debug!(%failure, "the daemon does not answer");
            None
        }
    };
    let Some(AdminResponse::Status(status)) = ask(AdminRequest::Status) else {
        let advice = "look into its log";
        let silent = Finding::new(Level::Error, "daemon", "it does not answer", advice);
        return vec![silent];
    };
    let mut findings = Vec::new();
    if let Some(error) = &status.config_error {
        let problem = format!("the configuration file was not taken over: {error}");
        let advice = "correct it, then hsmux reload";
        findings.push(Finding::new(Level::Error, "daemon", problem, advice));
    }
    findings.extend(status.services.iter().filter_map(service));
    findings.extend(status.members.iter().filter_map(member));
    findings.extend(left_out(config, &status.members));
    findings.extend(status.pool.debts.iter().map(debt));
    findings.extend(status.refused.iter().map(|refused| {
        let about = format!("a host at {}", refused.from);
        let problem = format!("it was refused: {}", refused.problem);
        Finding::new(Level::Note, about, problem, &refused.advice)
    }));
    if let Some(AdminResponse::Keys(keys)) = ask(AdminRequest::Keys) {
        let own = status.members.iter().filter(|member| !member.remote);
        let own: Vec<_> = own.map(|member| member.name.as_str()).collect();
        findings.extend(keys.iter().flat_map(|key| of_key(key, &own)));
        findings.extend(thin(&keys));
    }
    findings
}

fn unreachable(config: &Config, error: &Error, held: &Result<bool>) -> Finding {
    let socket = shown(&config.admin.socket.path);
    let advice = "run it as root or as the daemon's user";
    match (error.kind(), held) {
        (Kind::Forbidden, _) => Finding::new(Level::Error, socket, error.to_string(), advice),
        (_, Ok(true)) => {
            let problem = format!("a daemon runs, but is not reached: {error}");
            let advice =
                "restart it, if its socket in the file has changed: systemctl restart hsmux";
            Finding::new(Level::Error, socket, problem, advice)
        }
        (_, Err(unknown)) => Finding::new(Level::Error, socket, unknown.to_string(), advice),
        (_, Ok(false)) => {
            let problem = "the daemon does not run";
            Finding::new(Level::Warning, "daemon", problem, "start it: hsmux serve")
        }
    }
}

/// A service that does not serve.
fn service(service: &ServiceStatus) -> Option<Finding> {
    if service.state == ServiceState::Serving {
        return None;
    }
    let problem = service.problem.as_deref();
    let problem = problem.unwrap_or("it has been started, and does not serve yet");
    let advice = "look into the daemon's log, which has its lines, too";
    Some(Finding::new(Level::Error, &service.name, problem, advice))
}

/// Where a daemon would listen, and what says so.
fn addresses(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let broker = config.broker.iter().flat_map(|section| &section.listen);
    let gateway = || config.gateway.iter();
    let tls = gateway().flat_map(|section| &section.listen);
    let http = gateway().flat_map(|section| &section.http);
    let metrics = gateway().flat_map(|section| &section.metrics);
    let node = config.node.iter().flat_map(|section| &section.listen);
    let named = |key| move |at: &SocketAddr| (key, *at);
    (broker.map(named("[broker] listen")))
        .chain(tls.map(named("[gateway] listen")))
        .chain(http.map(named("[gateway] http")))
        .chain(metrics.map(named("[gateway] metrics")))
        .chain(node.map(named("[node] listen")))
}

fn taken(key: &str, at: SocketAddr) -> Option<Finding> {
    let error = TcpListener::bind(at).err()?;
    // A port below 1024 may be the daemon's all the same.
    let (problem, advice) = match error.kind() {
        ErrorKind::AddrInUse => (
            "another program listens there".to_owned(),
            format!(
                "ss -ltnp 'sport = :{}' says which; end it, or give {key} another port",
                at.port()
            ),
        ),
        ErrorKind::AddrNotAvailable => (
            "this machine has no such address".to_owned(),
            format!("correct {key}"),
        ),
        _ => return None,
    };
    let about = format!("{key} {at}");
    Some(Finding::new(Level::Error, about, problem, advice))
}

/// Keys whose other replicas are on members that are away: a line for those who are left.
fn thin(keys: &[KeyRow]) -> Vec<Finding> {
    let mut left: BTreeMap<Vec<String>, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for object in keys
        .iter()
        .map(|key| &key.object)
        .filter(|object| is_secret(object))
    {
        let away = object
            .replicas
            .iter()
            .filter(|replica| replica.state == "away");
        let away: Vec<_> = away.map(|replica| replica.member.as_str()).collect();
        if object.members.len() < 2 && !away.is_empty() {
            let (count, members) = left.entry(object.members.clone()).or_default();
            *count += 1;
            members.extend(away);
        }
    }
    let finding = |(serving, (count, away)): (Vec<String>, (usize, BTreeSet<&str>))| {
        let away = Vec::from_iter(away).join(", ");
        let (level, about, problem) = match serving.first() {
            Some(only) => (
                Level::Warning,
                only.as_str(),
                format!("it alone serves {count} keys"),
            ),
            None => (
                Level::Error,
                "the pool",
                format!("no member serves {count} keys"),
            ),
        };
        Finding::new(
            level,
            about,
            problem,
            format!("that changes when {away} is back: hsmux status"),
        )
    };
    left.into_iter().map(finding).collect()
}

fn is_secret(object: &ObjectStatus) -> bool {
    matches!(object.class.as_str(), "private key" | "secret key")
}

fn member(member: &MemberStatus) -> Option<Finding> {
    let reason = member.reason.clone().unwrap_or_default();
    let name = &member.name;
    match member.state.as_str() {
        "serving" if member.in_service < member.seats => {
            let problem = format!(
                "{} of {} workers serve: {reason}",
                member.in_service, member.seats
            );
            Some(Finding::new(Level::Warning, name, problem, "hsmux status"))
        }
        "serving" => None,
        "parked" => {
            let advice = format!("when the cause is gone: hsmux token resume {name}");
            let problem = format!("it is parked: {reason}");
            Some(Finding::new(Level::Error, name, problem, advice))
        }
        state => {
            let advice = "it is tried again by itself; correct the cause";
            let problem = format!("it does not serve ({state}): {reason}");
            Some(Finding::new(Level::Error, name, problem, advice))
        }
    }
}

/// Members of the file that the pool does not have: they were removed, or the file was not read since.
fn left_out(config: &Config, members: &[MemberStatus]) -> impl Iterator<Item = Finding> {
    let is_there = |name: &str| members.iter().any(|member| member.name == name);
    let left_out = config.tokens.iter().map(|member| &member.name);
    left_out.filter(move |name| !is_there(name)).map(|name| {
        let problem = "it is in the configuration file, but not in the pool";
        let advice = format!(
            "hsmux token add {name} puts it into service, and so does the next reload or start; \
             hsmux token remove {name} --forget takes it out of the file"
        );
        Finding::new(Level::Note, name, problem, advice)
    })
}

fn debt(debt: &DebtStatus) -> Finding {
    let member = &debt.member;
    let about = format!("changes of {member}");
    let problem = format!(
        "it has yet to make up for {} changes of its token's objects",
        debt.changes
    );
    let (problem, advice) = match &debt.last_error {
        Some(error) => (
            format!("{problem}; it has failed {} times: {error}", debt.attempts),
            format!(
                "correct the cause; the next change tries again, and so do \
                 hsmux token park {member} and hsmux token resume {member}"
            ),
        ),
        None => (
            problem,
            format!("bring {member} back: it does them before it serves"),
        ),
    };
    Finding::new(Level::Warning, about, problem, advice)
}

fn of_key(key: &KeyRow, own: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let object = &key.object;
    let secret = is_secret(object);
    let about = format!("{} {:?}", object.class, object.label);
    let reasons = object.replicas.iter().filter_map(|replica| {
        let reason = replica.reason.as_ref()?;
        Some((replica, reason.rsplit_once("; ")?))
    });
    findings.extend(reasons.map(|(replica, (why, advice))| {
        if replica.serves {
            return Finding::new(
                Level::Note,
                &about,
                format!("it is unproved: {why}"),
                advice,
            );
        }
        let problem = format!("its replica on {} does not serve: {why}", replica.member);
        Finding::new(Level::Error, &about, problem, advice)
    }));
    let is_unchecked = object
        .replicas
        .iter()
        .any(|replica| replica.serves && replica.reason.is_some());
    // Where none of its replicas may serve, a copy would not either.
    let servable = findings.is_empty() || !object.members.is_empty();
    // What another host alone has cannot be copied here.
    let copied = object
        .members
        .first()
        .is_none_or(|only| own.contains(&only.as_str()));
    let away = object
        .replicas
        .iter()
        .any(|replica| replica.state == "away");
    if secret
        && servable
        && !is_unchecked
        && object.members.len() < 2
        && !away
        && copied
        && own.len() > 1
    {
        let problem = match object.members.first() {
            Some(only) => format!("{only} alone serves it"),
            None => "no member serves it".to_owned(),
        };
        let advice = format!("hsmux key clone '{}'", key.uri);
        findings.push(Finding::new(Level::Warning, &about, problem, advice));
    }
    if secret && key.extractable == Some(true) {
        let problem = "it is extractable: who has the PIN can take it out of the token";
        let advice = "replace it by one made with hsmux key generate, or clear CKA_EXTRACTABLE \
                      once all replicas exist";
        findings.push(Finding::new(Level::Warning, &about, problem, advice));
    }
    findings
}
