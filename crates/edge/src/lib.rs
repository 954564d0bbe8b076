//! Network code that services share: listeners, limits of connections, requests to a server. It knows nothing of keys
//! and tokens.
//!
//! | file | one idea |
//! |---|---|
//! | `access_log` | a line for each request |
//! | `frame_limit` | how many small frames of HTTP/2 a peer may send |
//! | `flood_guard` | a stream that ends when its peer sends more |
//! | `head_limit` | memory limit for incomplete heads of HTTP/1.1 |
//! | `http_endpoint` | requests to one URL |
//! | `tcp_listener` | a TCP listener, and how many connections a process may have |
//! | `unix_listener` | a Unix socket whose permissions are set before anybody can connect |

pub mod access_log;
mod flood_guard;
mod frame_limit;
mod head_limit;
mod http_endpoint;
pub mod tcp_listener;
pub mod unix_listener;

pub use flood_guard::FloodGuard;
pub use frame_limit::FrameLimit;
pub use head_limit::{HeadLimit, HeadMemory, LONGEST_HEAD, Requests};
pub use http_endpoint::HttpEndpoint;
