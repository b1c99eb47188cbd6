//! What the storages behind a network share: calls that are counted, bounded, slowed down when the
//! far side asks for it, and tried again when one of them fails; and what storages of objects make
//! of keys.
//!
//! A call here is one page, one part, one object: small enough to be tried again by itself, so that
//! a fault in the middle of something large does not begin the large thing anew. Whoever uses a
//! backend still decides about the whole.

pub(crate) mod ahead;
mod body;
mod call;
pub(crate) mod chunks;
pub(crate) mod dress;
mod endpoint;
pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod keys;
pub(crate) mod lender;
pub(crate) mod media;
pub(crate) mod paged;
pub(crate) mod parts;
pub(crate) mod percent;
pub(crate) mod place;
mod retries;
mod status;
mod token;
mod words;
pub(crate) mod xml;

pub(crate) use body::{Pieces, Piped, collect, next, pipe};
pub(crate) use call::Call;
pub(crate) use endpoint::{Answer, Endpoint, Protocol, Whole};
pub(crate) use retries::{Retries, random};
pub(crate) use status::of_status;
pub(crate) use token::bearer;
pub(crate) use words::{causes, hex, quoted, text};

use std::sync::Arc;

/// Where variables of the environment come from; tests hand in their own.
pub(crate) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of the process. A variable that is set to nothing is not set.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}
