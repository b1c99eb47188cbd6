//! The tracker as its clients and its forwarders see it.

mod announce;
mod bad_forwarders;
mod balance;
mod check;
mod forward;
mod layout;
mod lists;
mod operators;
mod ownership;
mod pages;
mod reachability;
mod real_clients;
mod redirects;
mod support;
