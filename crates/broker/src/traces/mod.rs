//! Spans of requests ([`hsmux_traces`]).
//!
//! A request without a trace costs one read of a task-local value for each possible span.
//!
//! | file | one idea |
//! |---|---|
//! | `request` | the span of a request |
//! | `current` | the request of a task, and spans within its span |

mod current;
mod request;

pub use current::{current, follow, operation, span, timed};
pub use request::{answered, begin};
