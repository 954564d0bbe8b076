//! What gateway and broker share towards other hosts: limits of one connection. It knows streams and frames, and
//! nothing of keys, tokens, requests or configuration.
//!
//! | file | one idea |
//! |---|---|
//! | `frame_limit` | how many small frames of HTTP/2 a peer may send |
//! | `flood_guard` | a stream that ends when its peer sends more |

mod flood_guard;
mod frame_limit;

pub use flood_guard::FloodGuard;
pub use frame_limit::FrameLimit;
