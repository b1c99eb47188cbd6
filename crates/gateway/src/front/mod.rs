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
//! request from the queue, or frees its slot and closes the upstream's connection.

mod admit;
mod attempt;
mod body;
mod descriptors;
mod idle_timeout;
mod in_flight;
mod listen;
mod models;
mod progress;
mod relay;
mod request;
mod response_headers;
pub(crate) mod route;
mod serve_threads;
mod service;
mod upload;

pub(crate) use idle_timeout::IdleTimeouts;
pub(crate) use listen::{Listener, serve};
