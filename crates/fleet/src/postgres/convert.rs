//! Errors of tokio-postgres as ours.

use tokio_postgres::error::SqlState;

use crate::error::Error;

pub(super) fn error(server: &str, error: &tokio_postgres::Error) -> Error {
    let server = server.to_owned();
    let Some(answer) = error.as_db_error() else {
        return without_answer(server, error);
    };
    let code = answer.code();
    let mut cause = answer.message().to_owned();
    for more in [answer.detail(), answer.hint()].into_iter().flatten() {
        cause = format!("{cause}; {more}");
    }
    let class = &code.code()[..2];
    if [
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::QUERY_CANCELED,
    ]
    .contains(&code)
    {
        Error::Conflict { server, cause }
    } else if code == &SqlState::INSUFFICIENT_PRIVILEGE || class == "28" || class == "3D" {
        Error::Rejected { server, cause }
    } else if ["08", "53", "57"].contains(&class)
        || code == &SqlState::READ_ONLY_SQL_TRANSACTION
        || code == &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
    {
        // Shutting down, starting up, too many connections, or no longer the primary.
        Error::Unreachable { server, cause }
    } else {
        Error::Failed { server, cause }
    }
}

fn without_answer(server: String, error: &tokio_postgres::Error) -> Error {
    use std::error::Error as _;
    let cause = headworks_outbound::error_chain(error);
    if let Some(io) = error.source().and_then(|source| source.downcast_ref()) {
        return crate::net::connect_error(&server, io);
    }
    if error.is_closed() {
        return Error::Unreachable { server, cause };
    }
    if cause.contains("password") || cause.contains("authentication") {
        return Error::Rejected { server, cause };
    }
    Error::Failed { server, cause }
}
