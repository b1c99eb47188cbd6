//! HTTP front end: connections, routes, and the life of a request from its arrival to the last byte
//! of its response.
//!
//! - `listen` accepts connections and `serve_threads` serve them.
//! - `service` answers the HTTP/1 connections of [`headworks_h1`]; hyper serves HTTP/2.
//! - `route` maps a request to its endpoint, and `admit` authenticates and checks it.
//! - `request` queues the scheduled request until a permit is granted.
//! - `attempt` finds an upstream that responds.
//! - `relay` streams the response to the client, with the permit inside it.
//!
//! When a client disconnects, its future or its response body is dropped. That alone removes the
//! request from the queue. An upstream that has the request already is told that nobody waits, and
//! what it sends until it stops is read in the background (`running`, `relay`). Then the slot is
//! free.

mod admit;
mod attempt;
mod body;
mod body_memory;
mod call_permit;
mod connections;
mod descriptors;
mod idle_timeout;
mod in_flight;
mod large_bodies;
mod listen;
mod models;
mod progress;
mod quota;
mod relay;
mod request;
mod response_headers;
pub(crate) mod route;
mod running;
mod serve_threads;
mod service;
mod unread_output;
mod upload;

pub(crate) use body_memory::BodyMemory;
pub(crate) use idle_timeout::IdleTimeouts;
pub(crate) use large_bodies::LargeBodies;
pub(crate) use listen::{Listener, serve};
