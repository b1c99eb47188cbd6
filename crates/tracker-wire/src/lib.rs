//! Bencode and the tracker protocols of BitTorrent, as pure functions over bytes.
//!
//! Both directions: what a tracker reads from clients and answers them, and what a client (here:
//! the forward plane) asks other trackers and reads from them. Nothing here knows a socket or a
//! clock. Every reader takes untrusted bytes, has limits, and does not panic.
//!
//! | module | what | BEP |
//! |---|---|---|
//! | [`bencode`] | the encoding | 3 |
//! | [`query`] | announce and scrape as HTTP queries | 3, 7, 23, 48 |
//! | [`answer`] | announce answers over HTTP | 3, 7, 23, 24, 31 |
//! | [`scrape`] | scrape answers over HTTP | 48 |
//! | [`udp`] | packets | 15, 41 |
//! | [`compact`] | addresses in 6 or 18 bytes | 7, 23 |

pub mod answer;
pub mod bencode;
pub mod compact;
mod percent;
pub mod query;
mod retry;
pub mod scrape;
mod types;
pub mod udp;

pub use percent::{decode as percent_decode, encode as percent_encode};
pub use retry::RetryIn;
pub use types::{Announce, Counts, Event, InfoHash, PeerId};
