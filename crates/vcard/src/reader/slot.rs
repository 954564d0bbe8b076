//! A card in the slot of a reader: the thread of its connection.

use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::{Condvar, Mutex};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::link::{Link, Signal};
use crate::{Card, CardWork, Control, NoAnswer, Order};

/// The delay between attempts to reach a pcscd that does not listen yet.
const RETRY: Duration = Duration::from_millis(10);

/// How long a pulled card stays away. pcscd polls every 0.4 s, on a busy machine less often,
/// and must notice the removal, or it would assume that the card has power.
const AWAY: Duration = Duration::from_secs(2);

/// How long a reader waits for a mute card. vpcd itself waits forever.
const MUTE_TIMEOUT: Duration = Duration::from_secs(5);

/// The address at which vpcd waits for a card.
#[derive(Clone)]
pub(super) struct Address {
    pub port: u16,
    /// The network namespace, if vpcd has one of its own.
    pub network: Option<Arc<OwnedFd>>,
}

impl Address {
    /// Moves the calling thread to vpcd's namespace, and connects.
    fn connect(&self) -> io::Result<TcpStream> {
        if let Some(network) = &self.network {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
    }
}

/// One slot of a reader, and its card.
pub(super) struct Slot {
    /// The card's serial number.
    pub serial: String,
    shared: Arc<SlotInner>,
    thread: Option<JoinHandle<()>>,
}

struct SlotInner {
    control: Control,
    state: Mutex<ConnectionState>,
    changed: Condvar,
}

/// The target state of the thread, and its progress.
#[derive(Default)]
struct ConnectionState {
    /// The address to connect to, while pcscd runs.
    address: Option<Address>,
    ended: bool,
    /// Counts changes of the target state: a connection from an earlier version is discarded.
    version: u64,
    /// No connection before this time.
    away_until: Option<Instant>,
    /// The connection, to be cut.
    line: Option<TcpStream>,
    /// Whether pcscd has powered the card on and read its ATR.
    seen: bool,
}

impl Slot {
    /// Inserts a card, which connects as soon as there is an address.
    pub fn new(card: Card) -> io::Result<Self> {
        let serial = card.serial().to_owned();
        let shared = Arc::new(SlotInner {
            control: card.control(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let held = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(format!("card {serial}"))
            .spawn(move || held.run(card))?;
        Ok(Self {
            serial,
            shared,
            thread: Some(thread),
        })
    }

    /// Sets the address of vpcd, or none.
    pub fn connect_to(&self, address: Option<Address>) {
        self.shared.change(|state| {
            state.address = address;
            // A new pcscd has not seen the card.
            state.away_until = None;
        });
    }

    /// Gives an order to the card, even while it works.
    pub fn obey(&self, order: Order) {
        self.shared.control.obey(order);
        if matches!(order, Order::Unplug | Order::Plug) {
            self.shared.change(|_| {});
        }
    }

    pub fn plugged(&self) -> bool {
        self.shared.control.plugged()
    }

    pub fn worked(&self) -> CardWork {
        self.shared.control.worked()
    }

    /// Waits until pcscd has recognised the card; `false` after the deadline.
    pub fn seen(&self, deadline: Instant) -> bool {
        let mut state = self.shared.state.lock();
        while !state.seen {
            if self
                .shared
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                return state.seen;
            }
        }
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Ends a long command.
        self.shared.control.unplug();
        self.shared.change(|state| state.ended = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SlotInner {
    /// Changes the target state, and cuts the current connection.
    fn change(&self, change: impl FnOnce(&mut ConnectionState)) {
        let mut state = self.state.lock();
        state.cut();
        change(&mut state);
        state.version += 1;
        self.changed.notify_all();
    }

    fn run(&self, mut card: Card) {
        while let Some((version, address)) = self.wanted() {
            // Errors are expected: pcscd starts, ends or has crashed, or the card is pulled.
            let _ = address
                .connect()
                .and_then(|line| self.serve(version, line, &mut card));
            card.power_off();
            let mut state = self.state.lock();
            if state.version == version {
                state.cut();
                self.changed.wait_for(&mut state, RETRY);
            }
        }
    }

    /// Waits for an address to connect to; `None` at the end.
    fn wanted(&self) -> Option<(u64, Address)> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            let here = state.away_until.is_none_or(|until| until <= Instant::now());
            match (&state.address, state.away_until) {
                (Some(address), _) if here && self.control.plugged() => {
                    return Some((state.version, address.clone()));
                }
                (Some(_), Some(until)) if !here => {
                    self.changed.wait_until(&mut state, until);
                }
                _ => self.changed.wait(&mut state),
            }
        }
    }

    /// Serves the reader while it is connected.
    fn serve(&self, version: u64, line: TcpStream, card: &mut Card) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            if state.version != version {
                return Ok(());
            }
            state.line = Some(line.try_clone()?);
        }
        let mut reader = Link::new(line)?;
        let atr = card.power_on();
        card.power_off();
        loop {
            match reader.hear()? {
                Signal::PowerOff => card.power_off(),
                Signal::PowerOn => drop(card.power_on()),
                Signal::Reset => drop(card.reset()),
                Signal::AskAtr => {
                    reader.say(atr)?;
                    if card.powered() {
                        self.seen(version);
                    }
                }
                Signal::Command(command) => match card.exchange(&command) {
                    Ok(answer) => reader.say(&answer)?,
                    Err(NoAnswer::Mute) => {
                        self.control.wait_for(false, MUTE_TIMEOUT);
                        return Ok(());
                    }
                    // A mute card: the reader gets no answer.
                    Err(_) => return Ok(()),
                },
            }
        }
    }

    /// Records that pcscd has powered the card on and read its ATR.
    fn seen(&self, version: u64) {
        let mut state = self.state.lock();
        if state.version == version {
            state.seen = true;
            self.changed.notify_all();
        }
    }
}

impl ConnectionState {
    /// Cuts the connection, if there is one.
    fn cut(&mut self) {
        self.seen = false;
        if let Some(line) = self.line.take() {
            let _ = line.shutdown(Shutdown::Both);
            self.away_until = Some(Instant::now() + AWAY);
        }
    }
}
