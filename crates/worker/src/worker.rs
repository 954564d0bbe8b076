//! A worker process, from its own side.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hsmux_module::{ModuleToken, Options};
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Result, Token};
use hsmux_wire::{Answer, Call, Connection, Hello, decode, frame, serve_lane};
use minicbor::Decode;
use rustix::process::Signal;

use super::direct::DirectClients;
use super::orders::ModuleOrder;
use super::{handover, keep_secrets, lock_memory, start, take_stdin};

/// How long a vendor's call may go on when the parent has gone: it may be writing to the token.
const GRACE: Duration = Duration::from_secs(2);

/// The program of a worker: serves one token until the control socket on its standard input ends.
///
/// Whatever a module does to this process (crash, hang, leak), it does to this process alone.
pub fn worker_main() -> ExitCode {
    let clients = match DirectClients::new() {
        Ok(clients) => clients,
        Err(error) => {
            tracing::error!(%error, "the worker cannot start");
            return ExitCode::FAILURE;
        }
    };
    let of_thread = Arc::clone(&clients);
    let carry_out = move |orders: Orders<Options>| serve_token(orders, &of_thread);
    // Before there are other threads.
    let enter = |order: ModuleOrder| {
        let ModuleOrder { options, sandbox } = order;
        hsmux_wire::read_accounts();
        sandbox.enter(options)
    };
    let wait = move |control: &mut Connection| {
        if let Err(error) = clients.keep(control.stream()) {
            end_now(&error);
        }
        end_within(GRACE);
        clients.close();
    };
    end_of(serve(enter, carry_out, wait))
}

/// What a worker's parent has said.
pub struct Orders<T> {
    /// For its answers.
    pub control: UnixStream,
    /// The frame version agreed.
    pub version: u16,
    /// Which token to serve.
    pub order: T,
    /// The far ends are the parent's. The last is its administration's.
    pub lanes: Vec<UnixStream>,
}

/// The program of a worker of any kind: hears its orders on the standard input, and has `carry_out` follow
/// them on a thread of its own until that is done, or the parent has gone.
pub fn serve_orders<T>(carry_out: impl FnOnce(Orders<T>) + Send + 'static) -> ExitCode
where
    T: for<'b> Decode<'b, ()> + Send + 'static,
{
    end_of(serve(Ok, carry_out, |control| {
        // Nothing more is said on it: what comes is its end.
        let _ = control.read(0, None);
        end_within(GRACE);
    }))
}

fn end_of(served: Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent has closed its end, or has another version: this is for its log.
            tracing::warn!(%error, "the worker ends");
            ExitCode::FAILURE
        }
    }
}

/// `prepare` sees the order first, on this thread. `wait` returns when the parent wants this process to end.
fn serve<O, T>(
    prepare: impl FnOnce(O) -> Result<T>,
    carry_out: impl FnOnce(Orders<T>) + Send + 'static,
    wait: impl FnOnce(&mut Connection),
) -> Result<()>
where
    O: for<'b> Decode<'b, ()>,
    T: Send + 'static,
{
    let failed = |error: io::Error| Error::lost(format!("the worker's control socket: {error}"));
    keep_secrets();
    lock_memory();
    let stream = UnixStream::from(take_stdin().map_err(failed)?);
    let lanes = handover::receive(&stream).map_err(failed)?;
    let answers = stream.try_clone().map_err(failed)?;
    let mut control = Connection::called(stream);
    let (version, order) = hear_start(&mut control)?;
    let order = match prepare(order) {
        Ok(order) => order,
        Err(error) => {
            let _ = control.write(&Answer::Failed(error.clone()), None);
            return Err(error);
        }
    };
    let serving = std::thread::Builder::new()
        .name("hsmux-worker".into())
        .spawn(move || {
            // Wakes the thread below when there is nothing to serve, or no more.
            let _ends = HangUp(answers.try_clone());
            carry_out(Orders {
                control: answers,
                version,
                order,
                lanes,
            });
        })
        .map_err(failed)?;
    wait(&mut control);
    let _ = serving.join();
    Ok(())
}

fn hear_start<T: for<'b> Decode<'b, ()>>(control: &mut Connection) -> Result<(u16, T)> {
    let lost = |broken| Error::lost(format!("the worker's start: {broken}"));
    let hello: Hello = decode(control.read(frame::MAX_FRAME, None).map_err(lost)?)?;
    let (greeting, version) = start::greeting(&hello.versions());
    control.write(&greeting, None).map_err(lost)?;
    let Some(version) = version else {
        return Err(Error::protocol("the parent speaks another frame version"));
    };
    match frame::decode_call(control.read(frame::MAX_FRAME, None).map_err(lost)?)? {
        Call::Start(options) => minicbor::decode(options.expose())
            .map(|options| (version, options))
            .map_err(|error| Error::protocol(format!("the worker's options: {error}"))),
        other => Err(Error::protocol(format!(
            "{} before the start",
            other.name()
        ))),
    }
}

/// Opens the token, says so, and serves each lane on a thread of its own until they end.
fn serve_token(orders: Orders<Options>, clients: &DirectClients) {
    let Orders {
        control,
        version,
        order,
        mut lanes,
    } = orders;
    let reporter = Reporter::install(control);
    let module = order.module.clone();
    let token = match ModuleToken::open(order) {
        Ok(token) => token,
        Err(error) => return reporter.answer(&Answer::Failed(error)),
    };
    // Before the parent knows that it may hand connections over.
    clients.open(Arc::clone(&token) as Arc<dyn Token>, &module);
    let info = token.info();
    lanes.truncate(info.lanes.max(1) as usize + 1);
    reporter.answer(&Answer::Started((*info).clone()));
    std::thread::scope(|scope| {
        for lane in lanes {
            let token: &dyn Token = &*token;
            scope.spawn(move || {
                if let Err(error) = serve_lane(lane, version, token) {
                    tracing::warn!(%error, "a lane ends");
                }
            });
        }
    });
}

/// Tells the parent which of the vendor's functions comes next, until the start is answered.
struct Reporter {
    control: Mutex<Connection>,
    started: AtomicBool,
    last: Mutex<&'static str>,
}

static REPORTER: OnceLock<Arc<Reporter>> = OnceLock::new();

impl Reporter {
    fn install(control: UnixStream) -> Arc<Self> {
        let reporter = REPORTER.get_or_init(|| {
            Arc::new(Self {
                control: Mutex::new(Connection::new(control)),
                started: AtomicBool::new(false),
                last: Mutex::new(""),
            })
        });
        hsmux_module::observe(|call| {
            if let Some(reporter) = REPORTER.get() {
                reporter.doing(call);
            }
        });
        Arc::clone(reporter)
    }

    fn doing(&self, call: &'static str) {
        if self.started.load(Ordering::Relaxed) {
            return;
        }
        // C_GetMechanismInfo is called seventy times in a row.
        if std::mem::replace(&mut *self.last.lock(), call) != call {
            self.send(&Answer::Doing(call.into()));
        }
    }

    fn answer(&self, answer: &Answer) {
        self.started.store(true, Ordering::Relaxed);
        self.send(answer);
    }

    fn send(&self, answer: &Answer) {
        // A parent that has gone is noticed where the control socket is read.
        let _ = self.control.lock().write(answer, None);
    }
}

/// Ends the control socket when the thread that serves is done, by a panic too.
struct HangUp(io::Result<UnixStream>);

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Ok(control) = &self.0 {
            let _ = control.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Ends this process, whose module hangs, with a last word for its parent.
fn end_now(error: &Error) {
    if let Some(reporter) = REPORTER.get() {
        reporter.send(&Answer::Failed(error.clone()));
    }
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}

/// Ends this process after a while without another word: exit handlers of a module that hangs
/// would hang too.
fn end_within(grace: Duration) {
    let end = || {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    };
    let ending = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(grace);
        end();
    });
    if ending.is_err() {
        end();
    }
}
