//! Requests from other processes to running cards, through a socket in the readers' folder.
//! One connection is one request: a JSON line each way. Access to the folder, for its user and root, is the permission.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CardState, ReaderError, Readers};
use crate::Order;

const SOCKET: &str = "control";

/// The longest request.
const MAX_REQUEST: u64 = 64 * 1024;

/// How long a request may take to arrive, and the client to read the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take: pcscd may have to recognise 16 cards.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to running cards.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Lists the cards.
    List,
    /// Gives an order to a card. After a plug the answer comes when the card is recognised.
    Card {
        /// The card's number, from 0, in the order of OpenSC's readers.
        card: usize,
        /// The order.
        order: Order,
    },
    /// Ends pcscd.
    StopPcscd,
    /// Restarts pcscd, and waits until it has recognised all cards.
    StartPcscd,
}

type ControlResponse = Result<Vec<CardState>, String>;

/// Sends a request to the cards in a folder; returns their states afterwards.
pub fn ask(folder: &Path, request: &ControlRequest) -> Result<Vec<CardState>, ReaderError> {
    let socket = folder.join(SOCKET);
    let answer = exchange(&socket, request).map_err(|source| {
        ReaderError::io(format!("asking the cards at {}", socket.display()), source)
    })?;
    answer.map_err(ReaderError::Refused)
}

fn exchange(socket: &Path, request: &ControlRequest) -> io::Result<ControlResponse> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    serde_json::to_writer(&stream, request)?;
    stream.write_all(b"\n")?;
    Ok(serde_json::from_reader(&stream)?)
}

/// The listener for requests; it ends when dropped.
pub struct ControlServer {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts listening for these cards.
    pub fn open(readers: Arc<Readers>) -> Result<Self, ReaderError> {
        let socket = readers.folder().join(SOCKET);
        let failed =
            |source| ReaderError::io(format!("hearing requests at {}", socket.display()), source);
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let ended = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&ended);
        let thread = thread::Builder::new()
            .name("card-control".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if watched.load(Ordering::SeqCst) {
                        break;
                    }
                    if let Err(error) = stream.and_then(|stream| serve(&readers, &stream)) {
                        tracing::warn!(%error, "a request was not heard");
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self {
            socket,
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread. If that fails, the thread ends with the process.
        if UnixStream::connect(&self.socket).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn serve(readers: &Readers, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    let answer: ControlResponse = serde_json::from_str(&line)
        .map_err(|error| format!("no request: {error}"))
        .and_then(|request| follow(readers, request).map(|()| readers.states()));
    serde_json::to_writer(stream, &answer)?;
    stream.shutdown(Shutdown::Both)
}

fn follow(readers: &Readers, request: ControlRequest) -> Result<(), String> {
    let done = match request {
        ControlRequest::List => Ok(()),
        ControlRequest::Card { card, order } if readers.obey(card, order) => match order {
            Order::Plug => readers.wait(),
            _ => Ok(()),
        },
        ControlRequest::Card { card, .. } => {
            let last = readers.count().saturating_sub(1);
            return Err(format!("no card {card}: the last is {last}"));
        }
        ControlRequest::StopPcscd => {
            readers.stop_pcscd();
            Ok(())
        }
        ControlRequest::StartPcscd => readers.start_pcscd(),
    };
    done.map_err(|error| error.to_string())
}
