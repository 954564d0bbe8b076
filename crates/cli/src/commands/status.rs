//! `hsmux status`.

use clap::Args;
use hsmux_audit::OnFailure;
use hsmux_daemon::admin::{AdminRequest, AdminResponse, DaemonStatus, MemberStatus};
use hsmux_daemon::{ServiceState, ServiceStatus};
use hsmux_pool::DebtStatus;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux status\n  \
    hsmux status --json\n  \
    hsmux status --check\n\n\
    With --check, exit code 3 if a member or a service does not serve, if changes of a member's objects are\n\
    outstanding, or if the audit trail cannot be written.")]
pub struct StatusCommand {
    /// Exit with code 3 if the pool is degraded
    #[arg(long)]
    check: bool,
}

impl StatusCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let AdminResponse::Status(mut status) = context.ask(&AdminRequest::Status)? else {
            anyhow::bail!("the daemon answered something else");
        };
        status.config_error = mistakes(context).or(status.config_error);
        show(context, &status)?;
        let members = status
            .members
            .iter()
            .any(|m| m.in_service < m.seats || m.unproved > 0);
        let owed = !status.pool.debts.is_empty();
        let serves = |service: &ServiceStatus| service.state == ServiceState::Serving;
        let services = !status.services.iter().all(serves);
        let degraded = members || owed || services || status.audit.problem.is_some();
        Ok(if self.check && degraded {
            Exit::Degraded
        } else {
            Exit::Done
        })
    }
}

/// Mistakes of the current file, which the daemon may not have read since the last change.
fn mistakes(context: &Context) -> Option<String> {
    let mistakes = context.draft().ok()?.mistakes;
    let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Prints a status.
pub fn show(context: &Context, status: &DaemonStatus) -> anyhow::Result<()> {
    if context.json {
        return output::json(status);
    }
    let pool = &status.pool;
    let serving = status
        .members
        .iter()
        .filter(|member| member.in_service > 0)
        .count();
    println!(
        "pool {:?}: {serving} of {} members serve, {} of {} places in the queue taken",
        pool.label,
        status.members.len(),
        pool.waiting,
        pool.queue,
    );
    if pool.changes > 0 {
        println!("{} changes of the tokens wait for their turn", pool.changes);
    }
    for debt in &pool.debts {
        println!("{}", owes(debt));
    }
    println!(
        "daemon {} (pid {}), up {}, {}",
        status.version,
        status.pid,
        humantime::format_duration(std::time::Duration::from_secs(status.uptime_s)),
        status.config.display(),
    );
    for listener in &status.listeners {
        println!(
            "listener {}: {} applications{}",
            listener.socket.display(),
            listener.applications,
            if listener.read_only {
                ", read-only"
            } else {
                ""
            },
        );
    }
    for service in &status.services {
        println!("{}", is(service));
    }
    for peer in &status.peers {
        println!("peer {}: {} connections", peer.name, peer.connections);
    }
    if let Some(last) = status.refused.last() {
        let (at, from) = (last.at, &last.from);
        println!(
            "refused at {at}, from {from}: {}; {}",
            last.problem, last.advice
        );
    }
    if let Some(error) = &status.config_error {
        println!(
            "the configuration file has mistakes; the daemon goes on with what it read before:\n{error}"
        );
    }
    audit(&status.audit);
    println!();
    members(&status.members);
    Ok(())
}

/// The state of a service.
fn is(service: &ServiceStatus) -> String {
    let name = &service.name;
    match (service.state, service.pid, &service.problem) {
        (ServiceState::Serving, Some(pid), _) => format!("{name} (pid {pid}): serving"),
        (ServiceState::Starting, ..) => format!("{name}: starting"),
        (_, _, Some(problem)) => {
            format!(
                "{name}: {problem}; started again {} times",
                service.restarts
            )
        }
        _ => format!("{name}: ended"),
    }
}

/// Outstanding changes of a member.
fn owes(debt: &DebtStatus) -> String {
    let changes = match debt.changes {
        1 => "1 change".to_owned(),
        changes => format!("{changes} changes"),
    };
    let owes = format!("{} owes {changes} of its token's objects", debt.member);
    match &debt.last_error {
        Some(error) => format!("{owes}: failed {} times: {error}", debt.attempts),
        None => owes,
    }
}

/// Reports errors of the audit trail.
fn audit(audit: &hsmux_audit::TrailStatus) {
    if let Some(problem) = &audit.problem {
        let keys = match (audit.uses, audit.on_failure) {
            (true, OnFailure::Stop) => "keys are not used and nothing is changed until it can",
            (true, OnFailure::Continue) => "keys are used all the same, and lines are lost",
            (false, OnFailure::Stop) => "programs and hsmux change nothing until it can",
            (false, OnFailure::Continue) => {
                "hsmux destroys nothing until it can, and lines of what programs change are lost"
            }
        };
        println!("the audit trail cannot be written: {problem}; {keys}");
    }
    if audit.lost + audit.refused > 0 {
        println!(
            "the audit trail since the start: {} lines lost, {} uses, changes and acts refused",
            audit.lost, audit.refused
        );
    }
}

/// Prints members, and below the table the error of each.
pub fn members(members: &[MemberStatus]) {
    let columns = [
        output::Column::whole("MEMBER"),
        output::Column::whole("STATE"),
        output::Column::whole("WORKERS"),
        output::Column::whole("OBJECTS"),
        output::Column::whole("SERVED"),
        output::Column::whole("FAILED"),
        output::Column::whole("LATENCY"),
    ];
    let row = |member: &MemberStatus| {
        vec![
            member.name.clone(),
            member.state.clone(),
            format!("{}/{}", member.in_service, member.seats),
            member.objects.to_string(),
            member.served.to_string(),
            member.failed.to_string(),
            output::micros(member.latency_us),
        ]
    };
    output::table(&columns, members.iter().map(row));
    for member in members {
        if let Some(reason) = &member.reason {
            println!("\n{}: {reason}", member.name);
        }
    }
}
