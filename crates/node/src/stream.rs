//! Sockets that detect a cut cable, and frames on them.

use std::io;
use std::time::Duration;

use hsmux_token::{Error, Result};
use hsmux_wire::frame::{self, MAX_FRAME, Message};
use hsmux_wire::{Answer, Call};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpStream, UnixStream};

/// TCP keep-alive: the idle time before the first probe; further probes follow each second.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(3);

/// The number of unanswered probes that ends the connection.
const KEEPALIVE_PROBES: u32 = 4;

/// TCP_USER_TIMEOUT in milliseconds: unacknowledged data of this age ends the connection (tcp(7)).
const USER_TIMEOUT_MS: u32 = 7000;

/// Sets no delay, and an end within seconds of a silent failure of the other host.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MS)?;
    Ok(())
}

/// Removes the time-out of sent data: a host without room may leave it unread for a while. The heartbeat's connection
/// detects a host that is gone.
pub fn without_user_timeout(stream: &TcpStream) -> Result<()> {
    let set = sockopt::set_tcp_user_timeout(stream, 0);
    set.map_err(|e| Error::lost(format!("a socket: {e}")))
}

/// Passes bytes in both directions until one side has ended. It closes neither.
pub async fn pass(
    far: &mut (impl AsyncRead + AsyncWrite + Unpin),
    near: &mut UnixStream,
) -> io::Result<()> {
    let (mut from_far, mut to_far) = tokio::io::split(far);
    let (mut from_near, mut to_near) = near.split();
    let passed = tokio::select! {
        passed = copy(&mut from_far, &mut to_near) => passed,
        passed = copy(&mut from_near, &mut to_far) => passed,
    };
    passed.map(drop)
}

/// Writes a frame.
pub async fn write_message<T: Message>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> Result<()> {
    let mut bytes = Vec::new();
    frame::encode(message, &mut bytes)?;
    let written = async {
        to.write_all(&bytes).await?;
        to.flush().await
    };
    written.await.map_err(|error| lost(&error))
}

/// The initial buffer of a frame, in bytes.
const READ_AHEAD: usize = 8 << 10;

/// Reads a frame of at most this length.
pub async fn read_frame(from: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<Vec<u8>> {
    let length = from.read_u32_le().await? as usize;
    if length > most {
        let message = format!("a frame of {length} bytes; {most} are the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // The buffer grows with the received bytes, whatever length was claimed.
    let mut frame = Vec::with_capacity(length.min(READ_AHEAD));
    from.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

/// One call, and its answer.
pub async fn request(
    over: &mut (impl AsyncRead + AsyncWrite + Unpin),
    version: u16,
    call: &Call,
) -> Result<Answer> {
    write_message(over, call).await?;
    let frame = read_frame(over, MAX_FRAME)
        .await
        .map_err(|error| lost(&error))?;
    Ok(frame::decode_reply(version, &frame.into())?.answer)
}

/// The connection has ended by this.
pub fn lost(error: &io::Error) -> Error {
    Error::lost(match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed the connection".to_owned(),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The kernel holds these limits (tcp(7)).
    #[tokio::test]
    async fn a_cut_cable_ends_a_connection_after_seven_seconds() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = other.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        prepare(&stream).unwrap();
        // Without data: three seconds, and four probes of a second.
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let idle = sockopt::tcp_keepidle(&stream).unwrap();
        let interval = sockopt::tcp_keepintvl(&stream).unwrap();
        let probes = sockopt::tcp_keepcnt(&stream).unwrap();
        assert_eq!(idle + interval * probes, Duration::from_secs(7));
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 7000);
    }
}
