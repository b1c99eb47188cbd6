//! Number of bytes that the peer of a TCP connection has acknowledged.
//!
//! An upstream may close an idle connection just as a request is sent on it. If its kernel has
//! acknowledged nothing of the request, the upstream cannot have read any of it, and the request
//! can safely be sent again.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "no crate reads this field of `TCP_INFO`")
)]

use tokio::net::TcpStream;

/// Bytes acknowledged since the connection was opened; `None` if the system does not tell.
#[cfg(target_os = "linux")]
pub(super) fn bytes_acked(stream: &TcpStream) -> Option<u64> {
    use std::os::fd::AsRawFd;

    /// Offset and end of `tcpi_bytes_acked` in `struct tcp_info` (Linux 4.2 and later).
    const FIELD: std::ops::Range<usize> = 120..128;
    let mut info = [0u8; FIELD.end];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` and `length` are valid for writes, and `length` is the size of `info`, beyond
    // which the kernel does not write. The descriptor is open as long as `stream` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    let is_complete = result == 0 && length as usize >= FIELD.end;
    let field = info[FIELD].try_into().ok()?;
    is_complete.then(|| u64::from_ne_bytes(field))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn bytes_acked(_: &TcpStream) -> Option<u64> {
    None
}
