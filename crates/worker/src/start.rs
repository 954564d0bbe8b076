//! The start of a worker, from its parent's side: lanes, greeting, what to load, its answer.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use hsmux_token::fork::Unshared;
use hsmux_token::{Error, Kind, Result, TokenInfo};
use hsmux_wire::{
    Answer, Broken, Call, Connection, Greeting, Hello, SPOKEN, Versions, Welcome, agree, decode,
    frame,
};

use super::child::Child;
use super::orders::Order;
use super::{Environment, handover};

/// A worker that has logged in.
pub(super) struct StartedWorker {
    pub child: Child,
    pub version: u16,
    pub info: TokenInfo,
    pub lanes: Vec<Unshared<UnixStream>>,
    pub admin: Unshared<UnixStream>,
}

/// Starts a worker and waits until it has logged in, or has said why not.
pub(super) fn start(
    program: &Path,
    environment: &Environment,
    order: &Order,
    within: Duration,
) -> Result<StartedWorker> {
    let name = order.called();
    let failed = |error: std::io::Error| {
        let message = format!("{name} cannot be started ({}): {error}", program.display());
        Error::token(Kind::Environment, message)
    };
    let child = Child::spawn(program, order.role(), environment).map_err(failed)?;
    // One lane more, for administration.
    let count = (order.lanes().max(1) as usize + 1).min(handover::MOST);
    let pairs = (0..count).map(|_| Unshared::pair());
    let pairs: std::io::Result<Vec<_>> = pairs.collect();
    let (mut lanes, theirs): (Vec<_>, Vec<_>) = pairs.map_err(failed)?.into_iter().unzip();
    let control = child.control().map_err(failed)?;

    let mut exchange = StartExchange {
        control,
        deadline: Instant::now() + within,
        doing: None,
    };
    let (version, info) = match exchange.run(theirs, order) {
        Ok(started) => started,
        Err(StartFailure::Said(error)) => return Err(error),
        Err(StartFailure::Silent(broken)) => {
            return Err(exchange.explain(&name, &child, &broken, within));
        }
    };
    // The token may have had fewer sessions than were asked for.
    lanes.truncate(info.lanes.max(1) as usize + 1);
    let Some(admin) = lanes.pop() else {
        return Err(Error::protocol("no lane"));
    };
    Ok(StartedWorker {
        child,
        version,
        info,
        lanes,
        admin,
    })
}

/// The exchange with a worker during its start.
struct StartExchange {
    control: Unshared<UnixStream>,
    deadline: Instant,
    /// The vendor's call that it came to last.
    doing: Option<String>,
}

/// The reason for which a worker did not start.
enum StartFailure {
    /// It said why.
    Said(Error),
    /// It died, hung, or said nothing that can be understood.
    Silent(Broken),
}

impl From<Error> for StartFailure {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl From<Broken> for StartFailure {
    fn from(broken: Broken) -> Self {
        Self::Silent(broken)
    }
}

impl StartExchange {
    fn run(
        &mut self,
        lanes: Vec<Unshared<UnixStream>>,
        order: &Order,
    ) -> Result<(u16, TokenInfo), StartFailure> {
        handover::send(&self.control, &lanes).map_err(Broken::Unsent)?;
        // The worker's ends are the worker's alone from here: its death must end the lanes.
        drop(lanes);
        let control = Unshared::make(|| self.control.try_clone()).map_err(Broken::Unsent)?;
        let mut control = Connection::new(control);
        let deadline = Some(self.deadline);
        let greeting = control.exchange(&hello(), deadline)?;
        let version = match decode(greeting)? {
            Greeting::Welcome(welcome) => welcome.version,
            Greeting::Refused(error) => return Err(error.into()),
        };
        control.write(&Call::Start(order.written()?), deadline)?;
        loop {
            match decode(control.read(frame::MAX_FRAME, deadline)?)? {
                Answer::Doing(call) => self.doing = Some(call),
                Answer::Started(info) => return Ok((version, info)),
                Answer::Linked(info, spoken) => return Ok((spoken, info)),
                Answer::Failed(error) => return Err(error.into()),
                other => {
                    let message = format!("the worker answered its start with {other:?}");
                    return Err(Error::protocol(message).into());
                }
            }
        }
    }

    fn explain(&self, name: &str, child: &Child, broken: &Broken, within: Duration) -> Error {
        let doing = self.doing.as_deref().unwrap_or("nothing that it told");
        if broken.is_late() {
            child.end();
            let message = format!(
                "{name} did not start within {} s and was ended; the last that it did: {doing}",
                within.as_secs()
            );
            return Error::token(Kind::Deadline, message);
        }
        // It has closed its end, or is about to die.
        child.wait(Duration::from_secs(1));
        Error::lost(format!(
            "{name} {}; the last that it did: {doing}",
            child.end()
        ))
    }
}

/// A worker that was installed meanwhile may be of a newer version than its parent.
fn hello() -> Hello {
    Hello {
        oldest: *SPOKEN.start(),
        newest: *SPOKEN.end(),
        client: [0; 16],
        program: "hsmux".into(),
    }
}

/// The worker's answer to [`hello`].
pub(super) fn greeting(theirs: &Versions) -> (Greeting, Option<u16>) {
    match agree(&SPOKEN, theirs) {
        Ok(version) => {
            let welcome = Welcome {
                version,
                boot: u64::from(std::process::id()),
                pin_login: false,
                read_only: false,
                hands_over: None,
            };
            (Greeting::Welcome(welcome), Some(version))
        }
        Err(error) => (Greeting::Refused(error), None),
    }
}
