//! HTTP/1 connections: the server side for clients, the client side for upstreams.

mod bytes_acked;
pub(crate) mod client;
pub(crate) mod client_pool;
mod io;
pub(crate) mod server;
