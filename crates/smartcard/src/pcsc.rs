//! Cards in readers, through PC/SC (pcsc-lite's libpcsclite and its daemon pcscd).
//!
//! Each card has a context of its own. libpcsclite holds a mutex for each context across every transmission: cards
//! with a common one work one after the other (8 cards: 20.8 signatures a second in place of 150.5). Each card also
//! has a thread of its own. A transmission and the wait for another program's transaction cannot be cancelled, but
//! the wait for the thread can.

mod card_thread;
mod channel;
mod error;
mod readers;
mod watch;

pub use channel::{CardTimeouts, Channel};
pub use readers::{CardState, Reader, readers};
pub use watch::{ReaderWatch, WatchCanceller};
