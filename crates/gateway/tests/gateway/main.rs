//! A gateway on a real port, between clients and upstreams that do as they are told.

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
