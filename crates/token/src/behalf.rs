//! On whose behalf a service asks.

use minicbor::{Decode, Encode};

/// The client of a service for which a request is made. The daemon believes it only from its own services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Behalf {
    /// The client's name or address, for the audit trail.
    #[n(0)]
    pub client: Option<String>,
    /// The client's number: clients take turns. 0 is the service itself.
    #[n(1)]
    pub number: u64,
    /// The service's own number of the request, by which it can be withdrawn. 0: it cannot be.
    #[n(2)]
    pub request: u64,
    /// The span that has asked, as `traceparent` (W3C Trace Context), if the request is traced.
    #[n(3)]
    pub trace: Option<String>,
}
