//! A gateway on a real port, between clients and scripted upstreams.

mod concurrency;
mod disconnects;
mod front;
mod hostile;
mod http1;
mod keys;
mod limits;
mod queueing;
mod rates;
mod shares;
mod support;
mod upstream_connections;
mod upstreams;
mod usage;
mod views;
