//! A gateway on a real port, between clients and scripted upstreams.

mod concurrency;
mod front;
mod http1;
mod keys;
mod leaving;
mod limits;
mod links;
mod rates;
mod seeing;
mod shares;
mod support;
mod upstreams;
mod usage;
mod waiting;
