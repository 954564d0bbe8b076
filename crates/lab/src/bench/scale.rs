//! `hsmux bench scale`.

mod device;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use hsmux_bench::scale::{self, ScaleEvent, ScaleReport};
use hsmux_bench::{Measurement, sign};
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse, DaemonStatus};
use hsmux_token::{Error, Kind};
use rustix::process::{Pid, Signal, kill_process};

use device::Device;

use super::run::{RunArgs, interrupt, verdict, watched};
use super::target::daemon;
use crate::consent::consent;
use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::rest::Rest;

/// How long proofs of keys may take: a card with many takes minutes.
const PROVED_WITHIN: Duration = Duration::from_secs(600);

/// Options of `hsmux bench scale`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench scale\n  \
    hsmux bench scale --tokens 1,2,4 --concurrency 16 --html scale.html\n  \
    hsmux bench scale --kill-worker      # and no signature is lost\n\n\
    Members of the running pool that are not part of a step are parked, and resumed at the end in any case.\n\
    The command asks for confirmation first.")]
pub struct Scale {
    /// Numbers of members [default: 1, 2, 4, ... and all]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    tokens: Vec<usize>,
    /// Kill a worker in the middle of the last step
    #[arg(long)]
    kill_worker: bool,
    /// Do not ask for confirmation before members are parked
    #[arg(long)]
    yes: bool,
    /// Write a report with charts to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

impl Scale {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let config = context.draft()?.config;
        let group = MemberGroup::assemble(context.admin()?)?;
        let counts = self.counts(group.names.len())?;
        let _rest = self.confirm(context, &group, &counts)?;
        let opened = daemon(&config, None)?;
        let options = self.run.options(&opened)?;
        let device = group.device(&counts)?;
        let mechanism = options.mechanism.as_ref().unwrap_or(&options.key.mechanism);
        let about = scale::ScaleOptions {
            title: format!(
                "Signatures per second by {} of pool {} ({}): {}, {} bits, {} callers",
                listed(&counts),
                config.pool.label,
                device.name,
                mechanism.name(),
                options.key.about.bits,
                self.run.concurrency
            ),
            members: counts.clone(),
            published: options
                .key
                .published_kind()
                .filter(|_| device.is_smartcard_hsm),
        };
        let mut kill_result = Err(Error::pool(Kind::Invalid, "its step was not reached"));
        let mut load = |members: usize| -> hsmux_token::Result<Measurement> {
            group.only(members)?;
            group.settle(members, &stop)?;
            let kills = self.kill_worker && Some(&members) == counts.last();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let killer = kills.then(|| scope.spawn(|| group.kill_one(members, &over)));
                let measured =
                    watched(&stop, |control| sign::measure(&options, mechanism, control));
                over.store(true, Ordering::Relaxed);
                if let Some(Ok(outcome)) = killer.map(ScopedJoinHandle::join) {
                    kill_result = outcome;
                }
                measured.map_err(|e| Error::pool(Kind::Invalid, format!("{e:#}")))
            })
        };
        let measured = scale::run(&about, &mut load);
        group.all()?;
        let mut report = measured?;
        let kill_result = self.kill_worker.then_some(kill_result).transpose();
        if let Ok(event) = &kill_result {
            report.events.extend(event.clone());
        }
        let exit = self.publish(context, &report)?;
        // The results are kept, but do not include the requested failure.
        kill_result.map_err(|error| error.at("--kill-worker: no worker was killed"))?;
        Ok(exit)
    }

    /// Asks for confirmation if users of the pool are affected.
    fn confirm(
        &self,
        context: &Context,
        group: &MemberGroup,
        counts: &[usize],
    ) -> anyhow::Result<Option<Rest>> {
        let members = group.names.len();
        let parks = counts.iter().any(|count| *count < members);
        if !parks && !self.kill_worker {
            return Ok(None);
        }
        consent(
            self.yes,
            "parking members of the running pool",
            "Park members of the running pool in turn, which its users notice",
        )?;
        parks
            .then(|| Rest::of(&crate::hsmux()?, context, &group.names))
            .transpose()
    }

    fn counts(&self, members: usize) -> anyhow::Result<Vec<usize>> {
        if let Some(many) = self
            .tokens
            .iter()
            .find(|count| **count > members || **count == 0)
        {
            return Err(Exit::Usage.because(format!(
                "--tokens {many}: {members} members of the pool serve"
            )));
        }
        if !self.tokens.is_empty() {
            return Ok(self.tokens.clone());
        }
        let doubling = std::iter::successors(Some(1), |count| Some(count * 2));
        let mut counts: Vec<_> = doubling.take_while(|count| *count < members).collect();
        counts.push(members);
        Ok(counts)
    }

    fn publish(&self, context: &Context, report: &ScaleReport) -> anyhow::Result<Exit> {
        let page = self.html.as_deref().map(|file| (file, report.html()));
        output::report(report, context.json, page.as_ref())?;
        let mut measured = report.steps.iter().map(|step| &step.measurement);
        let failed = measured.any(|m| m.failed + m.wrong > 0);
        Ok(verdict(failed, report.interrupted_with().is_some()))
    }
}

/// The members of the measurement. On drop it resumes those that it has parked.
struct MemberGroup {
    admin: AdminClient,
    names: Vec<String>,
}

impl MemberGroup {
    /// All members that are in service.
    fn assemble(admin: AdminClient) -> anyhow::Result<Self> {
        let mut group = Self {
            admin,
            names: Vec::new(),
        };
        let status = group.status()?;
        let serving = status
            .members
            .into_iter()
            .filter(|member| member.state == "serving");
        group.names = serving.map(|member| member.name).collect();
        anyhow::ensure!(
            !group.names.is_empty(),
            "no member of the pool serves; see hsmux doctor"
        );
        Ok(group)
    }

    fn status(&self) -> hsmux_token::Result<DaemonStatus> {
        match self.ask(&AdminRequest::Status)? {
            AdminResponse::Status(status) => Ok(*status),
            _ => Err(Error::protocol("the daemon answered something else")),
        }
    }

    /// The kind of the members that are measured.
    fn device(&self, counts: &[usize]) -> hsmux_token::Result<Device> {
        let most = counts.iter().max().copied().unwrap_or_default();
        Ok(Device::of(&self.status()?.pool.seats, &self.names[..most]))
    }

    fn ask(&self, request: &AdminRequest) -> hsmux_token::Result<AdminResponse> {
        self.admin
            .ask(request)
            .map_err(|failure| Error::pool(Kind::Invalid, failure.message))
    }

    /// Keeps the first `count` in service, and no others.
    fn only(&self, count: usize) -> hsmux_token::Result<()> {
        let states = self.status()?.members;
        for (at, name) in self.names.iter().enumerate() {
            let state = states
                .iter()
                .find(|m| m.name == *name)
                .map(|m| m.state.as_str());
            let token = name.clone();
            let reason = "parked for a measurement".to_owned();
            match (at < count, state) {
                (true, Some("serving")) | (false, Some("parked")) => {}
                (true, _) => drop(self.ask(&AdminRequest::TokenResume { token })?),
                (false, _) => drop(self.ask(&AdminRequest::TokenPark {
                    token,
                    reason,
                    force: true,
                })?),
            }
        }
        Ok(())
    }

    /// Waits until the first `count` serve with all their keys, or for an interruption.
    /// Resumed members prove their keys first, which takes some seconds on a card.
    fn settle(&self, count: usize, stop: &AtomicBool) -> hsmux_token::Result<()> {
        let names = &self.names[..count];
        let until = Instant::now() + PROVED_WITHIN;
        while !stop.load(Ordering::Relaxed) {
            let status = self.status()?;
            let unsettled = names.iter().find(|name| !is_settled(&status, name));
            let Some(name) = unsettled else { break };
            if Instant::now() >= until {
                let why = format!(
                    "{name} does not serve with all its keys after {PROVED_WITHIN:?}; see hsmux status"
                );
                return Err(Error::pool(Kind::Deadline, why));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn all(&self) -> hsmux_token::Result<()> {
        self.only(self.names.len())
    }

    /// Kills a worker of the last member about a second after the start, and returns that as an event of the report.
    fn kill_one(&self, members: usize, over: &AtomicBool) -> hsmux_token::Result<ScaleEvent> {
        let failed = |why: String| Error::pool(Kind::Invalid, why);
        let start = Instant::now();
        let name = &self.names[members - 1];
        let status = self.status_under_load(start + Duration::from_secs(1), over)?;
        let member = status.members.iter().find(|member| member.name == *name);
        let worker = member
            .and_then(|member| member.pid)
            .and_then(|pid| Some((pid, Pid::from_raw(pid.cast_signed())?)));
        let Some((pid, process)) = worker else {
            return Err(failed(format!("{name} has no worker process")));
        };
        kill_process(process, Signal::KILL)
            .map_err(|error| failed(format!("the worker of {name} (pid {pid}): {error}")))?;
        Ok(ScaleEvent {
            members,
            at_s: start.elapsed().as_secs_f64(),
            what: format!("the worker of {name} (pid {pid}) is killed"),
        })
    }

    /// The status under load: operations were served since the previous one. During checks of signatures there are
    /// none.
    fn status_under_load(
        &self,
        not_before: Instant,
        over: &AtomicBool,
    ) -> hsmux_token::Result<DaemonStatus> {
        let served =
            |status: &DaemonStatus| status.pool.seats.iter().map(|s| s.served).sum::<u64>();
        let mut before = served(&self.status()?);
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            let status = self.status()?;
            let now = served(&status);
            if now > before && Instant::now() >= not_before {
                return Ok(status);
            }
            before = now;
        }
        let why = "the measurement was over before; give it more --time";
        Err(Error::pool(Kind::Invalid, why))
    }
}

/// Numbers of members in words: `1, 2 and 4 members`.
fn listed(counts: &[usize]) -> String {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    counts.dedup();
    let words: Vec<_> = counts.iter().map(usize::to_string).collect();
    match &*words {
        [one] if one == "1" => "1 member".to_owned(),
        [one] => format!("{one} members"),
        [rest @ .., last] => format!("{} and {last} members", rest.join(", ")),
        [] => String::new(),
    }
}

/// Whether a member serves, and has finished its proofs.
fn is_settled(status: &DaemonStatus, name: &str) -> bool {
    let mut members = status.members.iter();
    let serves = members.any(|member| member.name == name && member.state == "serving");
    let mut replicas = status.pool.objects.iter().flat_map(|o| &o.replicas);
    serves
        && !replicas
            .any(|replica| replica.member == name && matches!(&*replica.state, "proving" | "away"))
}

impl Drop for MemberGroup {
    fn drop(&mut self) {
        if let Err(error) = self.all() {
            eprintln!("hsmux: not every member was put back: {error}; see hsmux status");
        }
    }
}
