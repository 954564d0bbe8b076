//! Spans of requests ([`hsmux_traces`]).
//!
//! A request that is not traced pays a look at a variable of its thread for each thing that would be a span.
//!
//! | file | one idea |
//! |---|---|
//! | `request` | the span of a request |
//! | `current` | the request of a task, and spans within its span |

mod current;
mod request;

pub use current::{current, follow, operation, span, timed};
pub use request::{answered, begin};
