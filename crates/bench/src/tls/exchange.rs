//! One request and its answer on a separate connection, over HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use hsmux_token::{Error, Kind, Result};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_boring::SslStream;

use super::site::Site;

/// The answer.
pub struct HttpAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Bytes of its body.
    pub bytes: u64,
    /// Time of its last byte.
    pub ended: Instant,
    /// Its text, if it is HTML and the text was requested.
    pub page: Option<String>,
    /// Its redirection.
    pub location: Option<String>,
}

/// The part of a page that is searched.
const PAGE: usize = 4 << 20;

/// Gets `target` and closes the connection; keeps a page's text if `keeps` is set.
pub async fn get(
    stream: SslStream<TcpStream>,
    site: &Site,
    target: &str,
    keeps: bool,
) -> Result<HttpAnswer> {
    let request = Request::get(target)
        .header(HOST, site.authority())
        .header(
            USER_AGENT,
            concat!("hsmux-bench/", env!("CARGO_PKG_VERSION")),
        )
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| failed(&e))?;
    let shaken = handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|e| because(&e))?;
    let asking = async move {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|e| because(&e))?;
        read(answer, keeps).await
    };
    // The connection ends with the request, which gets its errors.
    join(asking, connection).await.0
}

async fn read(answer: Response<Incoming>, keeps: bool) -> Result<HttpAnswer> {
    let (head, mut body) = answer.into_parts();
    let text = |name| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
    let is_page = text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html"));
    let mut page = (keeps && is_page).then(Vec::new);
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|e| because(&e))?.into_data() else {
            continue;
        };
        bytes += data.len() as u64;
        if let Some(page) = &mut page
            && page.len() < PAGE
        {
            page.extend_from_slice(&data);
        }
    }
    Ok(HttpAnswer {
        status: head.status,
        bytes,
        ended: Instant::now(),
        page: page.map(|page| String::from_utf8_lossy(&page).into_owned()),
        location: text(LOCATION),
    })
}

/// The error for a missing answer.
pub fn late(timeout: Duration) -> Error {
    failed(&format_args!("no answer within {timeout:?}"))
}

fn failed(why: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Invalid, why.to_string())
}

/// hyper's error names the action; its cause names the reason.
fn because(error: &hyper::Error) -> Error {
    match std::error::Error::source(error) {
        Some(source) => failed(&format_args!("{error}: {source}")),
        None => failed(error),
    }
}
