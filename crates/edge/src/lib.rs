//! What services share towards other hosts: limits of one connection, and requests to a server. It knows nothing of keys,
//! tokens or configuration.
//!
//! | file | one idea |
//! |---|---|
//! | `frame_limit` | how many small frames of HTTP/2 a peer may send |
//! | `flood_guard` | a stream that ends when its peer sends more |
//! | `http_endpoint` | requests to one URL |

mod flood_guard;
mod frame_limit;
mod http_endpoint;

pub use flood_guard::FloodGuard;
pub use frame_limit::FrameLimit;
pub use http_endpoint::HttpEndpoint;
