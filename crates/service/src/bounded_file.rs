//! Bounded reads of small files that a user names.
//!
//! The path may lead to anything: a pipe without a writer, an endless device, a directory. Such
//! files are rejected with an error instead of blocking or filling memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Size limit of configuration files, certificate files and secrets.
const MAX_SIZE: u64 = 16 << 20;

/// Reads the file at `path`.
///
/// # Errors
/// When the file is not a regular file, is too large or cannot be read; the text says what to do.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_up_to(path, MAX_SIZE)
}

/// Reads the file at `path`, with a size limit of `most` bytes.
///
/// # Errors
/// When the file is not a regular file, is too large or cannot be read; the text says what to do.
pub fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    // Checked before opening: opening a pipe blocks until it has a writer.
    let about = std::fs::metadata(path).map_err(|cause| cause.to_string())?;
    if about.is_dir() {
        return Err("is a directory; name a file in it".to_owned());
    }
    if !about.is_file() {
        return Err("not a regular file; copy its content to one and name that".to_owned());
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(|cause| cause.to_string())?;
    file.take(most + 1)
        .read_to_end(&mut content)
        .map_err(|cause| cause.to_string())?;
    if content.len() as u64 > most {
        return Err(format!(
            "larger than {} MiB; check that it is the right file",
            most >> 20
        ));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_an_end_are_read() {
        let told = |path: &str| read(Path::new(path)).unwrap_err();
        assert!(told("/dev/zero").contains("not a regular file"));
        assert!(told("/").contains("a directory"));
        assert!(told("/no/such").contains("No such file"));
        assert!(read(Path::new("Cargo.toml")).unwrap().starts_with(b"["));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read_whole() {
        let path = std::env::temp_dir().join(format!("headworks-large-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        file.set_len(MAX_SIZE + 1).unwrap();
        let told = read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(told.contains("larger than 16 MiB"), "{told}");
    }
}
