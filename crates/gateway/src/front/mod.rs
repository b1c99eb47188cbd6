//! HTTP front end: connections, routes, and the life of a request from its arrival to the last byte
//! of its response.
//!
//! - `listen` accepts connections and `threads` serve them.
//! - `connection` and `line` implement HTTP/1 for clients; hyper serves HTTP/2.
//! - `route` maps a request to its endpoint, and `admit` authenticates and checks it.
//! - `passage` queues the scheduled request until a permit is granted.
//! - `attempt` finds an upstream that responds.
//! - `relay` streams the response to the client, with the permit inside it.
//!
//! When a client disconnects, its future or its response body is dropped. That alone removes the
//! request from the queue, or frees its slot and closes the upstream's connection.

mod admit;
mod attempt;
mod body;
mod connection;
mod held;
mod line;
mod listen;
mod marks;
mod models;
mod passage;
mod progress;
mod relay;
mod route;
mod threads;
mod upload;
mod watch;
mod within;

pub(crate) use listen::{Listener, serve};
pub(crate) use watch::Watch;
