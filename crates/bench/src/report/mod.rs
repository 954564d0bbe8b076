//! report/mod
