//! Bencode and the tracker protocols of BitTorrent, as pure functions over bytes.
//!
//! Every message can be parsed and written, so the crate serves both a tracker and a client of
//! other trackers. It uses neither sockets nor clocks. Every parser accepts untrusted bytes,
//! enforces limits and never panics.
//!
//! | module | contents | BEP |
//! |---|---|---|
//! | [`bencode`] | the encoding | 3 |
//! | [`query`] | announce and scrape requests as HTTP queries | 3, 7, 23, 48 |
//! | [`response`] | announce responses over HTTP | 3, 7, 23, 24, 31 |
//! | [`scrape`] | scrape responses over HTTP | 48 |
//! | [`udp`] | requests and responses as UDP packets | 15, 41 |
//! | [`compact`] | peer addresses in 6 or 18 bytes | 7, 23 |

pub mod bencode;
pub mod compact;
mod percent;
pub mod query;
pub mod response;
mod retry;
pub mod scrape;
mod types;
pub mod udp;

pub use percent::{decode as percent_decode, encode as percent_encode};
pub use retry::RetryIn;
pub use types::{Announce, Counts, Event, InfoHash, PeerId};
