//! The front: connections, routes, and the life of a request from its arrival to its last byte.
//!
//! `listen` accepts, `threads` serve, `connection` and `line` speak HTTP/1, `route` finds out what
//! is asked, `admit` finds out who asks and whether it may, `passage` waits for leave, `attempt`
//! finds an upstream that answers, and `relay` hands the answer on with the permit inside it.
//! Whoever goes away drops the future or the body, and with it the place, the slot and the
//! upstream's connection.

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
