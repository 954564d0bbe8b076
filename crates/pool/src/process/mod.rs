//! A worker process for each seat.
