//! The HTML output file, opened before the run.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::report::UsageError;

/// A writable output file. On drop, a newly created file is removed if nothing was written.
pub(super) struct OutputFile {
    path: PathBuf,
    file: File,
    made: bool,
}

impl OutputFile {
    pub(super) fn open(path: &Path) -> Result<OutputFile> {
        let made = !path.exists();
        // Opened for appending: existing content stays until the new page is complete.
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|cause| {
            let shown = path.display();
            UsageError(format!(
                "`{shown}` cannot be written: {cause}; name another file with --html"
            ))
        })?;
        let path = path.to_path_buf();
        Ok(OutputFile { path, file, made })
    }

    pub(super) fn write(mut self, text: &str) -> Result<()> {
        let cut = self.file.set_len(0);
        cut.and_then(|()| self.file.write_all(text.as_bytes()))
            .with_context(|| format!("`{}` cannot be written", self.path.display()))?;
        self.made = false;
        eprintln!("wrote {}", self.path.display());
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
