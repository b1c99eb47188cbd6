//! Reading a whole request body.

use std::future::Future;

use bytes::{Bytes, BytesMut};
use headworks_h1::{BodyBudget, BodyError, RequestBody, Transport};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

/// A request body that is being received.
pub(crate) trait Upload {
    /// Reads the whole body if it has at most `most` bytes, and as far as the budget has room.
    fn read_all(
        self,
        most: u64,
        budget: &mut impl BodyBudget,
    ) -> impl Future<Output = Result<Bytes, BodyError>> + Send;
}

impl<S: Transport> Upload for RequestBody<'_, S> {
    async fn read_all(self, most: u64, budget: &mut impl BodyBudget) -> Result<Bytes, BodyError> {
        RequestBody::read_all(self, most, budget).await
    }
}

impl Upload for Incoming {
    async fn read_all(
        mut self,
        most: u64,
        budget: &mut impl BodyBudget,
    ) -> Result<Bytes, BodyError> {
        // A body that announces too large a size is not read at all.
        if self.size_hint().lower() > most {
            return Err(BodyError::TooLarge);
        }
        // Frames are copied out of the buffer that they share with other streams: however small
        // they are, the body takes no more memory than its bytes.
        let mut body = BytesMut::new();
        while let Some(frame) = self.frame().await {
            let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if (body.len() + data.len()) as u64 > most {
                return Err(BodyError::TooLarge);
            }
            if !budget.grow(data.len()) {
                return Err(BodyError::NoMemory);
            }
            body.extend_from_slice(&data);
        }
        Ok(body.freeze())
    }
}
