//! Servers and a proxy that the client is tried against.

pub(crate) mod servers;
