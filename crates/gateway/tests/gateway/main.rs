//! A gateway on a real port, between clients and scripted upstreams.

mod concurrency;
mod disconnects;
mod fleet_keys;
mod front;
mod hostile;
mod http1;
mod key_store;
mod keys;
mod limits;
mod queueing;
mod rates;
mod shares;
mod support;
mod upstream_connections;
mod upstreams;
mod usage;
mod usage_store;
mod views;
