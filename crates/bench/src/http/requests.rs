//! The requests of each client, prepared before the clock starts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Uri};
use memchr::memmem::Finder;
use serde_json::{Map, Value, json};
use tokio::runtime::Builder;

use super::HttpOptions;
use super::address::ServiceAddress;
use super::connection::TransitConnection;
use super::request_kind::RequestKind;

/// One request, with its check.
pub struct PreparedRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    /// A text that the answer must have once for each item.
    expected: Finder<'static>,
    items: usize,
}

impl PreparedRequest {
    /// The HTTP request.
    pub fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Checks the answer; a decrypted text must be this client's own.
    pub fn check(&self, answer: &[u8]) -> Result<()> {
        let found = self.expected.find_iter(answer).count();
        if found >= self.items {
            return Ok(());
        }
        let message = format!(
            "wrong answer: {found} of {} items are right ({})",
            self.items,
            self.uri.path()
        );
        Err(Error::pool(Kind::Invalid, message))
    }
}

/// The requests of all clients.
pub struct Requests(Vec<Arc<[PreparedRequest]>>);

impl Requests {
    /// Gets the inputs of requests from the service.
    pub fn prepare(options: &HttpOptions, address: &ServiceAddress) -> Result<Self> {
        let invalid = |what| Err(Error::request(Kind::Invalid, what));
        if options.load.workers() == 0 {
            return invalid("clients: at least 1");
        }
        if options.batch == 0 {
            return invalid("batch: at least 1 item");
        }
        let builder = RequestBuilder {
            options,
            address,
            headers: headers(options, address)?,
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::pool(Kind::Environment, e.to_string()))?;
        let all = runtime.block_on(async {
            let mut connection = TransitConnection::new(address, options);
            let mut all = vec![builder.of_one(&mut connection).await?];
            builder.try_each(&all[0], &mut connection).await?;
            while all.len() < options.load.workers() {
                all.push(builder.of_one(&mut connection).await?);
            }
            Ok::<_, Error>(all)
        });
        Ok(Self(all.map_err(|e| e.at(&options.url))?))
    }

    /// The requests of one client.
    pub fn of(&self, client: usize) -> Arc<[PreparedRequest]> {
        Arc::clone(&self.0[client])
    }
}

fn headers(options: &HttpOptions, address: &ServiceAddress) -> Result<HeaderMap> {
    let value = |bytes: &[u8], what: &str| {
        HeaderValue::from_bytes(bytes)
            .map_err(|_| Error::request(Kind::Invalid, format!("{what}: not fit for a header")))
    };
    let mut headers = HeaderMap::new();
    headers.insert(HOST, value(address.host.as_bytes(), "the host")?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(token) = &options.token {
        let mut token = value(token.expose().trim_ascii(), "the token")?;
        token.set_sensitive(true);
        headers.insert("x-vault-token", token);
    }
    if !options.keep_alive {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(headers)
}

struct RequestBuilder<'a> {
    options: &'a HttpOptions,
    address: &'a ServiceAddress,
    headers: HeaderMap,
}

impl RequestBuilder<'_> {
    /// Prepares the requests of one client, with its own bytes.
    async fn of_one(
        &self,
        connection: &mut TransitConnection<'_>,
    ) -> Result<Arc<[PreparedRequest]>> {
        let mut payload = vec![0; self.options.payload];
        getrandom::fill(&mut payload).map_err(|error| {
            let message = format!("the system gave no random bytes: {error}");
            Error::pool(Kind::Environment, message)
        })?;
        let payload = STANDARD.encode(payload);
        let mut made = BTreeMap::new();
        let mut requests = Vec::new();
        for kind in self.options.mix.request_kinds() {
            let of = match kind.of {
                None => None,
                Some((other, member)) => {
                    if !made.contains_key(other) {
                        let answer = self.ask(other, member, &payload, connection).await?;
                        made.insert(other, answer);
                    }
                    made.get(other).map(|value| (member, value.clone()))
                }
            };
            requests.push(self.request(kind, &payload, of, self.options.batch)?);
        }
        Ok(requests.into())
    }

    /// Sends one request of each kind, to report errors before the measurement.
    async fn try_each(
        &self,
        requests: &[PreparedRequest],
        connection: &mut TransitConnection<'_>,
    ) -> Result<()> {
        let mut tried = Vec::new();
        for (request, kind) in requests.iter().zip(self.options.mix.request_kinds()) {
            if !tried.contains(&kind.name) {
                tried.push(kind.name);
                let answer = connection.ask(request.request()).await?;
                request.check(&answer)?;
            }
        }
        Ok(())
    }

    /// Gets `member` from the answer to another operation.
    async fn ask(
        &self,
        kind: &str,
        member: &str,
        payload: &str,
        connection: &mut TransitConnection<'_>,
    ) -> Result<Value> {
        let kind = RequestKind::find(kind).ok_or_else(|| Error::request(Kind::Invalid, kind))?;
        let request = self.request(kind, payload, None, 1)?;
        let answer = connection.ask(request.request()).await?;
        let json: Value = serde_json::from_slice(&answer).unwrap_or_default();
        match &json["data"][member] {
            Value::Null => Err(Error::protocol(format!(
                "{kind}: no {member} in the answer"
            ))),
            value => Ok(value.clone()),
        }
    }

    fn request(
        &self,
        kind: &RequestKind,
        payload: &str,
        of: Option<(&str, Value)>,
        items: usize,
    ) -> Result<PreparedRequest> {
        let key = if kind.path.ends_with('/') {
            escaped(&self.options.key)
        } else {
            String::new()
        };
        let path = format!("{}/v1/{}{key}", self.address.prefix, kind.path);
        let uri = path
            .parse()
            .map_err(|_| Error::request(Kind::Invalid, format!("{path}: no path of a URL")))?;
        let mut headers = self.headers.clone();
        let (method, body) = if kind.is_constant() {
            headers.remove(CONTENT_TYPE);
            (Method::GET, Bytes::new())
        } else {
            let mut item: Map<String, Value> = self.options.with.clone();
            let own = kind.payload.map(|member| (member, json!(payload)));
            let all = own.into_iter().chain(of);
            item.extend(all.map(|(member, value)| (member.to_owned(), value)));
            let body = match items {
                1 => Value::Object(item),
                _ => json!({ "batch_input": vec![item; items] }),
            };
            (Method::POST, body.to_string().into())
        };
        let expected = match kind.name {
            "decrypt" => payload.to_owned(),
            "verify" => "true".to_owned(),
            _ => format!("\"{}\"", kind.answer),
        };
        let items = if kind.is_constant() { 1 } else { items };
        Ok(PreparedRequest {
            method,
            uri,
            headers,
            body,
            expected: Finder::new(&expected).into_owned(),
            items,
        })
    }
}

/// Escapes a key's name in a path: `pkcs11:object=a` has reserved characters.
fn escaped(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b'=' => {
                path.push(char::from(byte));
            }
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment_of_a_path() {
        assert_eq!(escaped("orders-1"), "orders-1");
        assert_eq!(
            escaped("pkcs11:object=a b;id=%01"),
            "pkcs11:object=a%20b%3Bid=%2501"
        );
        assert_eq!(escaped("label:a/b?"), "label:a%2Fb%3F");
    }
}
