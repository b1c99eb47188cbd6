//! The fencing token of a node.

use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::{Error, Result};

/// The fencing token of a node: 128 random bits, drawn at every join and rejoin.
///
/// A number from a sequence would not do: after an asynchronous failover the same number can be
/// handed out twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeToken([u8; 16]);

impl NodeToken {
    /// Draws a new token.
    ///
    /// # Panics
    /// When the system has no random numbers.
    #[must_use]
    pub fn random() -> NodeToken {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
        NodeToken(bytes)
    }

    /// The token with these bits.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> NodeToken {
        NodeToken(bytes)
    }

    /// The bits.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for NodeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for NodeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeToken({self})")
    }
}

impl FromStr for NodeToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<NodeToken> {
        let mut bytes = [0; 16];
        let digits = text.replace('-', "");
        match hex::decode_to_slice(digits, &mut bytes) {
            Ok(()) => Ok(NodeToken(bytes)),
            Err(_) => Err(Error::Setting(
                "a node's token has 32 hexadecimal digits".to_owned(),
            )),
        }
    }
}

/// Stored as a UUID, which is 128 bits to PostgreSQL.
impl ToSql for NodeToken {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for NodeToken {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> std::result::Result<NodeToken, Box<dyn StdError + Sync + Send>> {
        Ok(NodeToken(raw.try_into()?))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }
}
