//! WebSocket and its like: a connection of HTTP/1.1 that becomes another protocol's (RFC 9110, section 7.8).

use http_body_util::{BodyExt, Empty};
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::{Answer, headers};
use crate::house::{House, said};

/// Asks for a protocol, on this connection.
pub fn ask(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Both sides have agreed: from now on everything passes as it is, until one side ends, or the gateway.
pub fn join(house: &House, client: OnUpgrade, mut answer: Response<Incoming>) -> Answer {
    let backend = hyper::upgrade::on(&mut answer);
    let mut closing = house.closing.clone();
    tokio::spawn(async move {
        let both = async {
            let (client, backend) = (client.await?, backend.await?);
            let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
            // How it ends is the affair of the two.
            let _ = copy_bidirectional(&mut client, &mut backend).await;
            Ok::<_, hyper::Error>(())
        };
        tokio::select! {
            _ = both => {}
            () = said(&mut closing) => {}
        }
    });
    let protocol = answer.headers().get(UPGRADE).cloned();
    headers::strip(answer.headers_mut());
    if let Some(protocol) = protocol {
        ask(answer.headers_mut(), protocol);
    }
    answer.map(|_| Empty::new().map_err(|never| match never {}).boxed_unsync())
}
