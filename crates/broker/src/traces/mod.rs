//! Spans of requests ([`hsmux_traces`]).
//!
//! A request that is not traced pays a look at a variable of its thread for each thing that would be a span.
//!
//! | file | one idea |
//! |---|---|
//! | `request` | what a request's span says |
//! | `current` | the request that a task works for, and spans within its own |

mod current;
mod request;

pub use current::{current, follow, operation, span, timed};
pub use request::{answered, begin};
