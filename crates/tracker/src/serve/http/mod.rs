//! Announces over HTTP/1.1 on persistent connections.

mod connection;
mod handler;
mod pages;
pub(crate) mod request;
mod response;
mod worker;

pub(super) use pages::Pages;
pub(super) use worker::HttpWorker;
