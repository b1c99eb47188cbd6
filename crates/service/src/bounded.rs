//! Small files that a user names, read whole.
//!
//! What is named may be anything: a pipe nobody writes to, a device without an end, a folder. It is
//! refused with words, and nothing waits or fills memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No configuration, certificate list or secret is larger.
const MOST: u64 = 16 << 20;

/// The content of the file at `path`.
///
/// # Errors
/// Why there is none, and what to do.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_up_to(path, MOST)
}

/// The same for a list, which may be longer.
///
/// # Errors
/// Why there is none, and what to do.
pub fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    // Before it is opened: opening a pipe waits for its writer.
    let about = std::fs::metadata(path).map_err(|cause| cause.to_string())?;
    if about.is_dir() {
        return Err("it is a folder; name a file in it".to_owned());
    }
    if !about.is_file() {
        return Err("it is not a regular file; write its content to one, and name that".to_owned());
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(|cause| cause.to_string())?;
    file.take(most + 1)
        .read_to_end(&mut content)
        .map_err(|cause| cause.to_string())?;
    if content.len() as u64 > most {
        return Err(format!(
            "it is larger than {} MiB; is it the right file?",
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
        assert!(told("/").contains("a folder"));
        assert!(told("/no/such").contains("No such file"));
        assert!(read(Path::new("Cargo.toml")).unwrap().starts_with(b"["));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read_whole() {
        let path = std::env::temp_dir().join(format!("headworks-large-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        file.set_len(MOST + 1).unwrap();
        let told = read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(told.contains("larger than 16 MiB"), "{told}");
    }
}
